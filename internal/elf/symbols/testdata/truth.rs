// SPDX-License-Identifier: Apache-2.0

#![crate_type = "cdylib"]

pub mod serving {
    pub struct Pool {
        pub used: u64,
    }

    pub trait Take {
        fn take(&mut self, n: u64) -> u64;
    }

    impl Take for Pool {
        #[inline(never)]
        fn take(&mut self, n: u64) -> u64 {
            self.used += n;
            self.used / 3
        }
    }

    #[inline(never)]
    pub fn hidden(n: u64) -> u64 {
        n * 7 + std::process::id() as u64
    }
}

#[no_mangle]
pub extern "C" fn exported(n: u64) -> u64 {
    use serving::Take;
    let mut pool = serving::Pool { used: n };
    pool.take(serving::hidden(n))
}
