// Package cache provides what reviews need to know of a cluster: the defaults of Namespaces, the labels and zones of
// Nodes, the version of the API server, and whether demand is published (demand.go).
//
// It reads only the objects' metadata, and keeps the necessary part of it in a cache of controller-runtime (see
// ByObject). State that is not known yet is reported as unknown: no decision is based on an incomplete list.
package cache
