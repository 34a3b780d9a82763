// Package drift compares what the kernel holds with what it should hold.
//
// Want decides anew, in memory, what the tables of a node should hold: it is a function of the cluster's state. Run
// itself reads that state and the kernel, and returns what differs. The running proxy's own record of the kernel is not
// used. Node adds what the proxy says about itself, and Text writes all of it for a person.
package drift
