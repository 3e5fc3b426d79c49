//! stub never
use std::net::IpAddr;
use crate::model::{name::ValkeyId, redacted::Redacted, slots::SlotRange, topology::NodeView};
#[derive(Clone)] pub struct Connector;
#[derive(Debug, thiserror::Error)] #[error("x")] pub struct Error;
pub struct Target<'a>(&'a str, IpAddr);
impl<'a> Target<'a> { pub fn operator(ip: IpAddr, p: &'a Redacted<String>) -> Self { Self(p.expose(), ip) } }
impl Connector {
 pub fn new(_: u16) -> Self { Self }
 pub async fn account(&self, _: &Target<'_>) -> Result<NodeView, Error> { Err(Error) }
 pub async fn meet(&self, _: &Target<'_>, _: IpAddr) -> Result<(), Error> { Err(Error) }
 pub async fn forget(&self, _: &Target<'_>, _: &ValkeyId) -> Result<(), Error> { Err(Error) }
 pub async fn add_slots(&self, _: &Target<'_>, _: SlotRange) -> Result<(), Error> { Err(Error) }
 pub async fn replicate(&self, _: &Target<'_>, _: &ValkeyId) -> Result<(), Error> { Err(Error) }
 pub async fn acl_load(&self, _: &Target<'_>) -> Result<(), Error> { Err(Error) }
}
