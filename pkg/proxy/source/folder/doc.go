// Package folder watches a folder of manifests and hands over what changed, as values of package model.
//
// A folder goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed                         file.go
//	decode    their objects, with package manifest       decode.go; package convert
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go, manifests.go; watch.go says when
package folder
