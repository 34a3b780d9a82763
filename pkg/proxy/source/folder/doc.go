// Package folder watches a folder of manifests and hands over what changed, as values of package model.
//
// A folder goes through these steps:
//
//	scan      which files there are                      package manifest
//	read      those that changed                         file.go
//	decode    their objects, with package manifest       decode.go; package convert
//	believe   whether a file may take something away     belief.go
//	resolve   which version of each object is in force   resolve.go
//	deliver   what is different, and what is wrong       folder.go, manifests.go; watch.go says when
//
// A file may be read while somebody writes it. It is left alone as a whole, and its last version stays in force, while it
// lacks objects that it had, or became shorter and its last object is another one: until it is complete again, or nobody
// has changed it for two seconds. Then it counts as it is. It makes no difference whether the file was written over or
// replaced: who moves a file over it may have written that one beside it, or still be unpacking an archive. A file that
// is deleted is gone at once, and so are its objects.
//
// A single file may stand for the folder. If it vanishes, what it held stays in force, as with a folder.
//
// inotify reports what happens in the directories of the tree, and in those of the files that links in it lead to. It
// reports nothing of the way there: the folder may be a link, a link may lead through others, and any of these, or a
// directory above, may be replaced. So once a second it is looked where the folder and each link in it lead: a stat of
// each, 2 microseconds. Watches of all directories on the way would tell sooner. But they would tell of all neighbours
// as well (/etc, /tmp), would have to follow each link that is turned, and would miss mounts.
//
// A Service whose label gives it to another proxy is taken away at once, where package cluster goes on with it for a
// while: a file says what is to be served now, and no other proxy reads the folder and needs time to take it over.
package folder
