package manifests

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// releases are sibling folders of manifests, and a link to one of them.
type releases struct {
	t    *testing.T
	root string
	link string // relative to the root
}

// write writes a release. One Service differs between releases, the other one does not.
func (r *releases) write(name, clusterIP string) {
	release := &testFolder{t: r.t, dir: filepath.Join(r.root, name)}
	release.write("web.yaml", serviceYAML("web", clusterIP))
	release.write("stays.yaml", serviceYAML("stays", "10.96.1.1"))
}

// switchLink changes the target of the link atomically.
func (r *releases) switchLink(to string) {
	r.t.Helper()
	absolute := filepath.Join(r.root, to)
	link(r.t, r.root, absolute, r.link+".next")
	rename(r.t, r.root, r.link+".next", r.link)
}

// swap replaces the directory by another one, for setups without links.
func (r *releases) swap(to string) {
	r.t.Helper()
	if _, err := os.Lstat(filepath.Join(r.root, r.link)); err == nil {
		rename(r.t, r.root, r.link, r.link+".before-"+to)
	}
	if _, err := os.Lstat(filepath.Join(r.root, to)); err == nil {
		rename(r.t, r.root, to, r.link)
	}
}

// linkSetups are the setups in which a folder leads to a release through the link.
var linkSetups = map[string]struct {
	link string
	// folder creates the links to the link, and returns the folder.
	folder func(t *testing.T, root string) string
	// isSwap means that a directory is used instead of the link.
	isSwap bool
	// of is the path of a release below the target of the link.
	of string
}{
	"the folder":                       {link: "current", folder: linkTo("current")},
	"a directory above the folder":     {link: "current", of: "a/b", folder: linkTo("current/a/b")},
	"no link, but the folder":          {link: "current", isSwap: true, folder: linkTo("current")},
	"no link, but a folder above":      {link: "current", of: "a/b", isSwap: true, folder: linkTo("current/a/b")},
	"a link on the path of the folder": {link: "elsewhere/current", folder: linkTo("folder", "folder", "elsewhere/current")},
	"a link on the path of a link to a subfolder": {
		link: "elsewhere/current", of: "a/b", folder: linkTo("folder", "folder/sub", "../elsewhere/current/a/b"),
	},
	"a link on the path of links to files": {
		link: "elsewhere/current", of: "a/b", folder: linkTo("folder",
			"folder/web.yaml", "../elsewhere/current/a/b/web.yaml", "folder/stays.yaml", "../elsewhere/current/a/b/stays.yaml"),
	},
	"a link on the path of two chained links": {
		link: "elsewhere/current", folder: linkTo("folder", "folder/sub", "../one/two", "one/two", "../elsewhere/current"),
	},
	"..data of a mounted ConfigMap": {
		link: "folder/..data", folder: linkTo("folder", "folder/web.yaml", "..data/web.yaml", "folder/stays.yaml", "..data/stays.yaml"),
	},
}

// linkTo returns a function that creates links, each listed before its target, and returns the folder.
func linkTo(folder string, links ...string) func(*testing.T, string) string {
	return func(t *testing.T, root string) string {
		for i := 0; i < len(links); i += 2 {
			if err := os.MkdirAll(filepath.Join(root, filepath.Dir(links[i])), 0o755); err != nil {
				t.Fatal(err)
			}
			link(t, root, links[i+1], links[i])
		}
		return folder
	}
}

// The links lead to the folder or are in it. No object may be lost during the switch, and the last state must stay when
// a link leads nowhere.
func TestWatchNoticesChangedLinks(t *testing.T) {
	for name, setup := range linkSetups {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a changed link is noticed within a second
			r := &releases{t: t, root: t.TempDir(), link: setup.link}
			if err := os.MkdirAll(filepath.Dir(filepath.Join(r.root, r.link)), 0o755); err != nil {
				t.Fatal(err)
			}
			switchTo := r.switchLink
			if setup.isSwap {
				switchTo = r.swap
			}
			for i := 1; i <= 3; i++ {
				r.write(filepath.Join(fmt.Sprintf("v%d", i), setup.of), fmt.Sprintf("10.96.0.%d", i))
			}
			switchTo("v1")
			dir := filepath.Join(r.root, setup.folder(t, r.root))
			f := runFolder(t, &testFolder{t: t, dir: dir, state: make(map[string]string)}, newWatch)
			until := func(what string, holds func() bool) {
				t.Helper()
				f.until(func() bool {
					if len(f.state) != 2 {
						t.Fatalf("%s: an object is lost: %v", what, f.state)
					}
					return holds()
				})
			}
			serves := func(clusterIP string) func() bool {
				return func() bool {
					return strings.HasPrefix(f.state["Service default/web"], "["+clusterIP+"]") && len(f.problems) == 0
				}
			}
			until("first release", serves("10.96.0.1"))
			switchTo("v2")
			until("the link is switched", serves("10.96.0.2"))
			current := &testFolder{t: t, dir: filepath.Join(r.root, setup.link, setup.of)}
			current.write("web.yaml", serviceYAML("web", "10.96.0.22"))
			until("the new target changes", serves("10.96.0.22"))
			switchTo("nowhere")
			until("the link is dangling", func() bool { return len(f.problems) > 0 })
			f.wantService("10.96.0.22")
			switchTo("v3")
			until("the link has a target again", serves("10.96.0.3"))
		})
	}
}

// An object that moves from one file to another could otherwise be missed in both.
func TestLinkChangeDuringAReadCausesAnotherRead(t *testing.T) {
	const switches = 250
	r := &releases{t: t, root: t.TempDir(), link: "current"}
	for i := range switches {
		release := &testFolder{t: t, dir: filepath.Join(r.root, fmt.Sprint(i))}
		for k, service := range []string{"web", "stays"} {
			release.write(fmt.Sprintf("%d.yaml", (i+k)%2), serviceYAML(service, fmt.Sprintf("10.96.%d.1", k)))
		}
	}
	r.switchLink("0")
	f := runFolder(t, &testFolder{t: t, dir: filepath.Join(r.root, r.link), state: make(map[string]string)}, busyWatch)
	for i := 1; i < switches; i++ {
		r.switchLink(fmt.Sprint(i))
		time.Sleep(5 * time.Millisecond)
	}
	r.write("last", "10.96.0.99")
	r.switchLink("last")
	f.until(func() bool {
		if len(f.state) != 2 {
			t.Fatalf("an object is lost: %v", f.state)
		}
		return strings.HasPrefix(f.state["Service default/web"], "[10.96.0.99]")
	})
}
