// Package manifests watches a folder of manifests and hands over what changed, as values of package model.
//
// A folder goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed                         file.go
//	decode    their objects, with package manifest       decode.go; package convert
//	believe   whether a file may take something away     stability.go
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go, manifests.go; watch.go says when
//
// A file may be read while somebody writes it. The new version is ignored as a whole, and the last one stays in force,
// while objects are missing, or the text became shorter and its last object differs: until it is complete again, or has
// not changed for two seconds. Then it counts as it is. It makes no difference whether the file was overwritten or
// replaced: a file that is moved over it may be one that was written beside it, or one from an archive still being
// unpacked. A deleted file is gone at once, and so are its objects.
//
// A single file may stand for the folder. If it vanishes, what it held stays in force, as with a folder.
//
// inotify reports what happens in the directories of the tree, and in those of the files that links in it lead to. It
// reports nothing about the path there: the folder may be a link, a link may lead through others, and any of these, or a
// directory above, may be replaced. So once a second the watch checks where the folder and each link in it lead: a stat
// of each, 2 microseconds. Watches of all directories on the path would be faster. But they would report all neighbours
// as well (/etc, /tmp), would have to follow each link that changes, and would miss mounts.
//
// A Service whose label gives it to another proxy is removed at once, while package cluster keeps serving it for some
// seconds: a file says what is to be served now, and no other proxy reads the folder and needs time to take it over.
package manifests
