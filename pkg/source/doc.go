// Package source watches where the cluster's state comes from and hands over what changed, as values of package model.
//
// Conversion from Kubernetes' types is pure and stands apart from reading (convert*.go). What cannot be true is refused there,
// object by object, as errors that name the field; everything else goes on. A part of an object is left out alone if that
// keeps connections away from where they do not belong and lets the rest serve (left_out.go): one of many endpoints, ports
// and addresses.
//
// A folder of manifests goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed                         file.go
//	decode    their objects, with package manifest       decode.go, decode_object.go
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go, manifests.go; watch.go says when
package source
