// Package convert turns Kubernetes' API objects into values of package model. It is pure: nothing is read, watched or
// logged here.
//
// What is invalid is refused, object by object, as a finding that names the field; everything else goes on. A single
// part of an object (one of many endpoints, ports or addresses) is left out if that keeps connections away from where
// they do not belong, and the rest can serve (skipped.go). An Update is what the sources hand over: what changed, what
// is newly refused, and what was put right. The kinds that are read are described in kinds.go.
package convert
