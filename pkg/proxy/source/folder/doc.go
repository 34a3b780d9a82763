// Package folder watches a folder of manifests and hands over what changed, as values of package model.
//
// A folder goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed                         file.go
//	decode    their objects, with package manifest       decode.go; package convert
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go, manifests.go; watch.go says when
//
// A Service whose label gives it to another proxy is taken away at once, where package cluster goes on with it for a
// while: a file says what is to be served now, and no other proxy reads the folder and needs time to take it over.
package folder
