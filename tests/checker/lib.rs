//! What must hold, checked against the truth: the safety and liveness lists, over recorded evidence.
//! Never asks the operator.
