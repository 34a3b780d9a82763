// Package balance computes how much of a node's connections each endpoint of a Service gets, so that as many as
// possible stay near and no endpoint expects more than a bound times the mean.
//
// The way is Cells (the Nodes as a list of topology keys sees them), Places (a Service's endpoints likewise), a Plan
// (the split for all nodes), a Share (one node's part of it), and slots (the share in whole numbers). All are functions
// of values in whole numbers: the same Nodes and endpoints give the same result, bit for bit, in whatever
// order they came.
package balance
