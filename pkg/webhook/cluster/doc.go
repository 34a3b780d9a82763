// Package cluster knows the labels and annotations of a cluster's Namespaces and Nodes: what defaults a Namespace has,
// and which labels and zones there are. It also knows the version of the API server, and whether demand is published.
//
// It asks for the objects' metadata alone and keeps what is needed of it, in a cache of controller-runtime (see
// ByObject). What is not known yet is reported as unknown: no decision is based on an empty list that is only
// incomplete.
package cluster
