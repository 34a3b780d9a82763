// Package manifests watches a folder of manifests and delivers its changes as values of package model.
//
// A folder goes through these steps:
//
//	scan       the tree for files                           package manifest; folder.go
//	read       the files that changed                       file.go
//	decode     their objects, with package manifest         decode.go; package convert
//	stabilize  a file that may be incomplete                stability.go
//	resolve    which version of each object is active       resolve.go
//	deliver    the changes and the problems                 folder.go, manifests.go; watch.go triggers it
//
// A file may be read while it is being written. While objects are missing, or the text became shorter and its last
// object differs, the new version is ignored as a whole, and the last one stays active: until the file is complete
// again, or has not changed for two seconds. Then it counts as it is. It makes no difference whether the file was
// overwritten or replaced: a file that is moved over it may have been written next to it, or come from an archive that
// is still being unpacked. A deleted file is removed at once, and so are its objects.
//
// A single file may be used instead of a folder. If it vanishes, its objects stay active, as with a folder.
//
// inotify reports events in the directories of the tree, and in those of the files to which links in it lead. It
// reports nothing about the path there: the folder may be a link, a link may lead through others, and any of these, or
// a directory above, may be replaced. So once a second the watch checks where the folder and each link in it lead: a
// stat of each, 2 microseconds. Watches of all directories on the path would be faster. But they would report all
// neighbours as well (/etc, /tmp), would have to follow each link that changes, and would miss mounts.
//
// A Service whose label assigns it to another proxy is removed at once, while package apiserver keeps serving it for
// some seconds: a file states what is to be served now, and no other proxy reads the folder and needs time for a
// handoff.
package manifests
