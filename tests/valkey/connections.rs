//! What a connector does with servers that refuse, hang, die, come back or close connections.
//! Never waits for longer than a deadline of the connector's own, plus what a busy machine adds.

use std::io::Read;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;
use std::time::Instant;

use futures::future::join_all;
use operator::model::redacted::Redacted;
use operator::valkey::client::Connector;
use operator::valkey::client::Error;
use operator::valkey::client::Target;

use crate::servers::PASSWORD;
use crate::servers::PORT;
use crate::servers::Server;
use crate::servers::next_address;
use crate::servers::nothing_was_denied;
use crate::servers::password;

/// Two deadlines of a second each cannot be within this, one can, on a machine that does much else.
pub(crate) const ONE_DEADLINE: Duration = Duration::from_millis(1900);

/// The connections that the operator's user has there.
fn connections(server: &Server) -> usize {
    let clients: String = server.ask(&["CLIENT", "LIST"]);
    clients
        .lines()
        .filter(|line| line.contains("user=_momento_operator"))
        .count()
}

#[tokio::test]
async fn one_connection_serves_all_calls() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    server.view(&connector).await;
    let views = join_all((0..200).map(|_| server.view(&connector))).await;
    // What a process uses of its memory changes from one look to the next.
    assert!(views.iter().all(|view| view.id == views[0].id));
    assert_eq!(connections(&server), 1);
    let start = Instant::now();
    for _ in 0..200 {
        server.view(&connector).await;
    }
    println!(
        "an account on a warm connection: {:?}",
        start.elapsed() / 200
    );
    drop(connector);
    nothing_was_denied([&server]);
}

#[tokio::test]
async fn first_calls_at_once_leave_one_connection() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    join_all((0..20).map(|_| server.view(&connector))).await;
    crate::servers::eventually("that the others are closed", async || {
        match connections(&server) {
            1 => Ok(()),
            count => Err(count.to_string()),
        }
    })
    .await;
}

#[tokio::test]
async fn a_stranger_refuses_the_login() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    let wrong = Redacted::new(PASSWORD.replace('0', "f"));
    let error = connector
        .account(&Target::operator(server.ip(), &wrong))
        .await
        .unwrap_err();
    let words = "refused the login: WRONGPASS invalid username-password pair or user is disabled.";
    assert_eq!(error.to_string(), format!("{} {words}", server.ip()));
    assert!(!format!("{error:?}").contains(wrong.expose()));
    // The right one is not asked by the wrong one's connection, nor the other way.
    server.view(&connector).await;
    let error = connector
        .account(&Target::operator(server.ip(), &wrong))
        .await
        .unwrap_err();
    assert!(matches!(error, Error::Login { .. }), "{error:?}");
}

/// A connection that the server serves: the one that asked whether it is up may still be counted, and then
/// the next is refused.
async fn the_only_client(server: &Server) -> TcpStream {
    crate::servers::eventually("that the server has room for one client", async || {
        let mut client = TcpStream::connect(server.address).map_err(|error| error.to_string())?;
        client
            .write_all(b"PING\r\n")
            .map_err(|error| error.to_string())?;
        let mut reply = [0; 64];
        let length = client.read(&mut reply).map_err(|error| error.to_string())?;
        let reply = String::from_utf8_lossy(&reply[..length]).into_owned();
        // Served, be it with a demand to log in.
        if reply.contains("max number of clients") {
            Err(reply)
        } else {
            Ok(client)
        }
    })
    .await
}

#[tokio::test]
async fn a_full_server_is_no_stranger() {
    let connector = Connector::new(PORT);
    let server = Server::start_with(&[("maxclients", "1")]);
    let _other = the_only_client(&server).await;
    let error = server.account(&connector).await.unwrap_err();
    assert!(
        error.to_string().contains("max number of clients"),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_hung_server_costs_one_deadline() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    server.view(&connector).await;
    server.hang();

    let start = Instant::now();
    let errors = join_all((0..20).map(|_| server.account(&connector))).await;
    let kept = start.elapsed();
    for error in errors {
        let error = error.unwrap_err();
        assert!(matches!(error, Error::Call { .. }), "{error:?}");
    }
    let start = Instant::now();
    let error = server.account(&connector).await.unwrap_err();
    let dialed = start.elapsed();
    assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    println!("a hung server costs {kept:?}, and {dialed:?} when it is dialed");
    assert!(
        kept < ONE_DEADLINE && dialed < ONE_DEADLINE,
        "{kept:?} {dialed:?}"
    );

    server.wake();
    server.view(&connector).await;
    nothing_was_denied([&server]);
}

#[tokio::test]
async fn an_address_where_nobody_is_costs_one_deadline() {
    let connector = Connector::new(PORT);
    let nobody = next_address();
    let start = Instant::now();
    let error = connector
        .account(&Target::operator(nobody, &password()))
        .await
        .unwrap_err();
    assert_eq!(error.to_string(), format!("failed to connect to {nobody}"));
    assert!(start.elapsed() < ONE_DEADLINE);
}

#[tokio::test]
async fn a_killed_server_is_an_error_and_is_found_again() {
    let connector = Connector::new(PORT);
    let mut server = Server::start();
    let before = server.view(&connector).await;
    server.kill();
    for _ in 0..2 {
        let error = server.account(&connector).await.unwrap_err();
        assert!(matches!(error, Error::Connect { .. }), "{error:?}");
    }
    server.start_again();
    assert_eq!(server.view(&connector).await.id, before.id);
    nothing_was_denied([&server]);
}

#[tokio::test]
async fn a_connection_that_the_server_closed_is_no_silence() {
    let connector = Connector::new(PORT);
    let server = Server::start();
    let before = server.view(&connector).await;
    for _ in 0..20 {
        let killed: u32 = server.ask(&["CLIENT", "KILL", "USER", "_momento_operator"]);
        assert_eq!(killed, 1);
        assert_eq!(server.view(&connector).await.id, before.id);
    }
    assert_eq!(connections(&server), 1);
    nothing_was_denied([&server]);
}
