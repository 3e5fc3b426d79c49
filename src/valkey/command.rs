//! One function for each command that is used, and no other.
//! Never asks again where Valkey refused or kept silent: the next tick looks again.

use std::net::IpAddr;

use redis::{Cmd, Pipeline, RedisResult, Value};

use crate::model::name::ValkeyId;
use crate::model::slots::{SlotRange, SlotSet};
use crate::model::topology::NodeView;
use crate::valkey::client::{Connector, Error, Target, call_error};
use crate::valkey::parse;

/// What the account asks of INFO; see `NodeView`.
const INFO_SECTIONS: [&str; 6] = [
    "replication",
    "server",
    "memory",
    "keyspace",
    "persistence",
    "clients",
];
/// The account's name in errors.
const ACCOUNT: &str = "CLUSTER MYID, INFO, NODES, GETSLOTMIGRATIONS and INFO";

impl Connector {
    /// A process's own account of itself and of the others, in one round trip.
    pub async fn account(&self, target: &Target<'_>) -> Result<NodeView, Error> {
        let mut info = redis::cmd("INFO");
        info.arg(&INFO_SECTIONS);
        let mut pipeline = Pipeline::with_capacity(5);
        pipeline
            .add_command(cluster("MYID"))
            .add_command(cluster("INFO"))
            .add_command(cluster("NODES"))
            .add_command(info)
            .add_command(cluster("GETSLOTMIGRATIONS"))
            .ignore_errors();
        let replies: Vec<RedisResult<Value>> = self.call(target, ACCOUNT, &pipeline).await?;
        let failed = |error| call_error(ACCOUNT, target.address(), error);
        let mut replies = replies.into_iter();
        let mut text = || -> Result<String, Error> {
            let reply = replies.next().unwrap_or(Ok(Value::Nil)).map_err(failed)?;
            redis::from_redis_value(reply).map_err(|error| failed(error.into()))
        };
        let (id, info, nodes, server) = (text()?, text()?, text()?, text()?);
        let unreadable = |source| Error::Reply {
            address: target.address(),
            source,
        };
        let mut view = parse::account(&id, &info, &nodes, &server).map_err(unreadable)?;
        // A node that loads refuses to tell, and takes part in none.
        if let Some(Ok(jobs)) = replies.next() {
            let jobs = parse::migrations(jobs).ok_or(parse::Error::Field {
                reply: "CLUSTER GETSLOTMIGRATIONS",
                field: "job",
            });
            view.migrations = jobs.map_err(unreadable)?;
        }
        Ok(view)
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

    /// The same of many ranges.
    pub async fn add_slot_set(&self, target: &Target<'_>, slots: &SlotSet) -> Result<(), Error> {
        let mut command = cluster("ADDSLOTSRANGE");
        add_ranges(&mut command, slots);
        self.tell(target, "CLUSTER ADDSLOTSRANGE", command).await
    }

    /// Gives the target's claims the greatest epoch in its cluster, if they do not have it.
    pub async fn bump_epoch(&self, target: &Target<'_>) -> Result<(), Error> {
        let mut pipeline = Pipeline::with_capacity(1);
        pipeline.add_command(cluster("BUMPEPOCH"));
        // BUMPED or STILL, with the epoch.
        let [_epoch]: [String; 1] = self.call(target, "CLUSTER BUMPEPOCH", &pipeline).await?;
        Ok(())
    }

    /// Starts moving slots from the target, which owns them, to another primary. OK is a promise:
    /// what became of it is told by the account.
    pub async fn migrate_slots(
        &self,
        target: &Target<'_>,
        slots: &SlotSet,
        to: &ValkeyId,
    ) -> Result<(), Error> {
        let mut command = cluster("MIGRATESLOTS");
        command.arg("SLOTSRANGE");
        add_ranges(&mut command, slots);
        command.arg("NODE").arg(to.as_str());
        self.tell(target, "CLUSTER MIGRATESLOTS", command).await
    }

    /// Makes the target an empty primary of its own, known to nobody, with a new id. A primary with
    /// keys refuses.
    pub async fn reset(&self, target: &Target<'_>) -> Result<(), Error> {
        let mut command = cluster("RESET");
        command.arg("HARD");
        self.tell(target, "CLUSTER RESET HARD", command).await
    }

    /// Makes the target a replica of a primary that it knows.
    pub async fn replicate(&self, target: &Target<'_>, primary: &ValkeyId) -> Result<(), Error> {
        let mut command = cluster("REPLICATE");
        command.arg(primary.as_str());
        self.tell(target, "CLUSTER REPLICATE", command).await
    }

    /// Asks the target, a replica, to change places with its primary, which pauses writes until the
    /// replica has them all. OK is a promise: it fails silently after five seconds.
    pub async fn failover(&self, target: &Target<'_>) -> Result<(), Error> {
        self.tell(target, "CLUSTER FAILOVER", cluster("FAILOVER"))
            .await
    }

    /// Makes the target, a replica, stand for election without asking its primary.
    pub async fn failover_force(&self, target: &Target<'_>) -> Result<(), Error> {
        let mut command = cluster("FAILOVER");
        command.arg("FORCE");
        self.tell(target, "CLUSTER FAILOVER FORCE", command).await
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

fn add_ranges(command: &mut Cmd, slots: &SlotSet) {
    for range in slots.ranges() {
        command.arg(range.start()).arg(range.end());
    }
}

fn cluster(subcommand: &str) -> Cmd {
    let mut command = redis::cmd("CLUSTER");
    command.arg(subcommand);
    command
}
