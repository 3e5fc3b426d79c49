//! Who has the machine: a few tests that share it, or one alone.
//! Never one alone before those that would share it: they mostly wait, and do so together.

use std::sync::Condvar;
use std::sync::Mutex;
use std::sync::MutexGuard;
use std::sync::PoisonError;

/// More testbeds on two cores have each other's deadlines passed.
const SHARING_MAX: usize = 3;

static USERS: Mutex<Users> = Mutex::new(Users {
    sharing: 0,
    waiting: 0,
    alone: false,
});

static CHANGED: Condvar = Condvar::new();

struct Users {
    sharing: usize,
    /// Of those that would share.
    waiting: usize,
    alone: bool,
}

/// The machine, or a part of it, until this is dropped.
pub(crate) struct Turn {
    alone: bool,
}

/// Waits until no other test has the machine, or would share it.
pub(crate) fn alone() -> Turn {
    let mut users = wait_while(users(), |users| {
        users.alone || users.sharing + users.waiting > 0
    });
    users.alone = true;
    Turn { alone: true }
}

/// Waits for a place beside others.
pub(crate) fn beside_others() -> Turn {
    let mut users = users();
    users.waiting += 1;
    let mut users = wait_while(users, |users| users.alone || users.sharing == SHARING_MAX);
    users.waiting -= 1;
    users.sharing += 1;
    Turn { alone: false }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut users = users();
        if self.alone {
            users.alone = false;
        } else {
            users.sharing -= 1;
        }
        CHANGED.notify_all();
    }
}

// A test that failed has given its turn back.
fn users() -> MutexGuard<'static, Users> {
    USERS.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wait_while(
    users: MutexGuard<'static, Users>,
    busy: impl Fn(&Users) -> bool,
) -> MutexGuard<'static, Users> {
    let waited = CHANGED.wait_while(users, |users| busy(users));
    waited.unwrap_or_else(PoisonError::into_inner)
}
