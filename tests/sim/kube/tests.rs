//! Every behaviour and every fault, once.
//! Never a run of the operator: that is for the suites.
