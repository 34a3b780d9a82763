// Package cache knows the labels and annotations of a cluster's Namespaces and Nodes: which defaults a Namespace has,
// and which labels and zones there are. It also knows the version of the API server, and whether demand is published.
//
// It asks only for the objects' metadata, and keeps what it needs of that in a cache of controller-runtime (see
// ByObject). What is not known yet is reported as unknown: no decision is based on a list that is merely incomplete.
package cache
