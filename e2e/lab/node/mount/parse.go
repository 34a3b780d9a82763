package main

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"
)

// request is one call of mount(2).
type request struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

// options are those that are flags of mount(2). All others are passed to the file system.
var options = map[string]uintptr{
	"bind":     unix.MS_BIND,
	"rbind":    unix.MS_BIND | unix.MS_REC,
	"remount":  unix.MS_REMOUNT,
	"ro":       unix.MS_RDONLY,
	"nosuid":   unix.MS_NOSUID,
	"nodev":    unix.MS_NODEV,
	"noexec":   unix.MS_NOEXEC,
	"noatime":  unix.MS_NOATIME,
	"rw":       0,
	"defaults": 0,
}

// parse parses "[--no-canonicalize] [-t TYPE] [-o OPTIONS] SOURCE TARGET".
func parse(args []string) (request, error) {
	var r request
	var data, paths []string
	for i := 0; i < len(args); i++ {
		switch arg := args[i]; {
		case arg == "--no-canonicalize":
		case arg == "-t" && i+1 < len(args):
			i++
			r.kind = args[i]
		case arg == "-o" && i+1 < len(args):
			i++
			for option := range strings.SplitSeq(args[i], ",") {
				flag, known := options[option]
				r.flags |= flag
				if !known {
					data = append(data, option)
				}
			}
		case strings.HasPrefix(arg, "-"):
			return r, fmt.Errorf("unknown option %q", arg)
		default:
			paths = append(paths, arg)
		}
	}
	if len(paths) != 2 {
		return r, fmt.Errorf("want a source and a target, got %q", paths)
	}
	r.source, r.target, r.data = paths[0], paths[1], strings.Join(data, ",")
	return r, nil
}
