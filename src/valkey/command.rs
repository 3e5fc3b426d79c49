//! One function for each command that is used, and no other.
//! Never asks again where Valkey refused or kept silent: the next tick looks again.

use std::net::IpAddr;

use redis::{Cmd, Pipeline};

use crate::model::name::ValkeyId;
use crate::model::slots::SlotRange;
use crate::model::topology::NodeView;
use crate::valkey::client::{Connector, Error, Target};
use crate::valkey::parse;

impl Connector {
    /// A process's own account of itself and of the others, in one round trip.
    pub async fn account(&self, target: &Target<'_>) -> Result<NodeView, Error> {
        let mut info = redis::cmd("INFO");
        info.arg("replication");
        let mut pipeline = Pipeline::with_capacity(4);
        pipeline
            .add_command(cluster("MYID"))
            .add_command(cluster("INFO"))
            .add_command(cluster("NODES"))
            .add_command(info);
        let (id, info, nodes, replication): (String, String, String, String) = self
            .call(
                target,
                "CLUSTER MYID, INFO, NODES and INFO replication",
                &pipeline,
            )
            .await?;
        parse::account(&id, &info, &nodes, &replication).map_err(|source| Error::Reply {
            address: target.address(),
            source,
        })
    }

    /// Introduces the process at `peer` to the target. Valkey always answers OK: it means to try.
    pub async fn meet(&self, target: &Target<'_>, peer: IpAddr) -> Result<(), Error> {
        let mut command = cluster("MEET");
        command.arg(peer.to_string()).arg(self.port());
        self.tell(target, "CLUSTER MEET", command).await
    }

    /// Bans a dead member from the target's table for a minute. One that it does not know is
    /// forgotten already.
    pub async fn forget(&self, target: &Target<'_>, member: &ValkeyId) -> Result<(), Error> {
        let mut command = cluster("FORGET");
        command.arg(member.as_str());
        match self.tell(target, "CLUSTER FORGET", command).await {
            Err(error) if error.refused_with("ERR Unknown node") => Ok(()),
            told => told,
        }
    }

    /// Lets the target, a primary, claim slots that nobody owns in its view: all or none. A replica
    /// would take them too, and spoil every view: its role is for the caller to know.
    pub async fn add_slots(&self, target: &Target<'_>, range: SlotRange) -> Result<(), Error> {
        let mut command = cluster("ADDSLOTSRANGE");
        command.arg(range.start()).arg(range.end());
        self.tell(target, "CLUSTER ADDSLOTSRANGE", command).await
    }

    /// Makes the target a replica of a primary that it knows.
    pub async fn replicate(&self, target: &Target<'_>, primary: &ValkeyId) -> Result<(), Error> {
        let mut command = cluster("REPLICATE");
        command.arg(primary.as_str());
        self.tell(target, "CLUSTER REPLICATE", command).await
    }

    /// Makes the target, a replica, a primary in its primary's place, without a vote.
    pub async fn takeover(&self, target: &Target<'_>) -> Result<(), Error> {
        let mut command = cluster("FAILOVER");
        command.arg("TAKEOVER");
        self.tell(target, "CLUSTER FAILOVER TAKEOVER", command)
            .await
    }

    /// Makes the target read its ACL file again. An invalid file changes nothing and is refused.
    pub async fn acl_load(&self, target: &Target<'_>) -> Result<(), Error> {
        let mut command = redis::cmd("ACL");
        command.arg("LOAD");
        self.tell(target, "ACL LOAD", command).await
    }

    /// Sets directives, all or none. Valkey's refusal names a directive but never its value.
    pub async fn config_set(
        &self,
        target: &Target<'_>,
        directives: &[(&str, &str)],
    ) -> Result<(), Error> {
        let mut command = redis::cmd("CONFIG");
        command.arg("SET");
        for (name, value) in directives {
            command.arg(name).arg(value);
        }
        self.tell(target, "CONFIG SET", command).await
    }

    /// A command whose only good answer is OK.
    async fn tell(
        &self,
        target: &Target<'_>,
        name: &'static str,
        command: Cmd,
    ) -> Result<(), Error> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(command);
        let [()] = self.call(target, name, &pipeline).await?;
        Ok(())
    }
}

fn cluster(subcommand: &str) -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(subcommand);
    command
}
