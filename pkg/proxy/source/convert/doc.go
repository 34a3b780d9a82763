// Package convert turns Kubernetes' API objects into values of package model. It is pure: nothing is read, watched or
// logged here.
//
// What is invalid is refused, object by object, as a finding that names the field; everything else goes on. A part
// of an object is left out alone if that keeps connections away from where they do not belong and lets the rest serve
// (left_out.go): one of many endpoints, ports and addresses. An Update is what the sources hand over: what changed,
// what is newly refused, and what was put right. The kinds that are read are described in kinds.go.
package convert
