// Package audit compares what the kernel holds with what it should hold.
//
// Want decides anew, in memory, what the tables of a node should hold: it is a function of the cluster's state. Run
// reads that state and the kernel, both by itself, and returns what differs. Nothing that a running proxy believes
// about the kernel is used. Node adds what the proxy says about itself, and Text writes all of it for a person.
package audit
