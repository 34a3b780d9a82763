// Package folder watches a folder of manifests and hands over what changed, as values of package model.
//
// A folder goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed, once they have settled file.go
//	decode    their objects, with package manifest       decode.go; package convert
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go; manifests.go says when
//
// Once a second the folder is looked at. What happened to a file counts when it has been the same for two seconds: it was
// changed, added or deleted, in place or by another one that was moved over it, or a link on the way to it leads elsewhere.
// So a file that is being written takes nothing away, and an object that moves from one file to another is never in
// neither. An object that leaves a file for one that has not settled stays until that one has.
//
// A single file may stand for the folder. If it vanishes, what it held stays in force, as with a folder.
//
// A Service whose label gives it to another proxy is removed at once, while package cluster keeps serving it for some
// seconds: a file says what is to be served now, and no other proxy reads the folder and needs time to take it over.
package folder
