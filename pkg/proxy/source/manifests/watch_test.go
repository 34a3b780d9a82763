package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// folderRunner runs Manifests over a folder and applies its updates.
type folderRunner struct {
	*testFolder
	updates chan convert.Update
	count   int
}

// runFolder runs Manifests over f until the test ends. It returns after the first update.
func runFolder(t *testing.T, f *testFolder, newWatch func(dir string, log *slog.Logger) *watch) *folderRunner {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	runner := &folderRunner{testFolder: f, updates: make(chan convert.Update, 1000)}
	done := make(chan error, 1)
	manifests := NewManifests(f.dir, convert.View{}, slog.New(slog.DiscardHandler))
	go func() {
		watch := newWatch(f.dir, manifests.log)
		defer watch.close()
		done <- manifests.run(ctx, watch, func(update convert.Update) { runner.updates <- update })
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run() = %v, want nil when the context ends", err)
		}
	})
	runner.next()
	return runner
}

// next applies the next update.
func (f *folderRunner) next() {
	f.t.Helper()
	select {
	case update := <-f.updates:
		f.count++
		f.apply(update)
	case <-time.After(wait.Timeout):
		f.t.Fatalf("no update arrived; state %v, problems %q", f.state, f.problems)
	}
}

// until applies updates until a condition is true.
func (f *folderRunner) until(condition func() bool) {
	f.t.Helper()
	for !condition() {
		f.next()
	}
}

func (f *folderRunner) untilService(clusterIP string) {
	f.t.Helper()
	f.until(func() bool { return f.state["Service default/web"] == fmt.Sprintf("[%s] [{ TCP 80 0}]", clusterIP) })
}

// polling is a watch without inotify.
func polling(dir string, log *slog.Logger) *watch {
	return &watch{dir: dir, log: log, poll: 20 * time.Millisecond}
}

// busyWatch returns a watch that never waits, but causes the whole folder to be read again at once.
func busyWatch(dir string, log *slog.Logger) *watch { return &watch{dir: dir, log: log} }

// The file may have any name, and its neighbours are ignored. While the file is missing, its objects stay active.
func TestWatchFollowsASingleFile(t *testing.T) {
	for name, watch := range map[string]func(string, *slog.Logger) *watch{"inotify": newWatch, "polling": polling} {
		t.Run(name, func(t *testing.T) {
			folder := newTestFolder(t)
			folder.write("state", serviceYAML("web", "10.96.0.1"))
			folder.write("beside.yaml", serviceYAML("db", "10.96.0.9"))
			single := *folder
			single.dir = filepath.Join(folder.dir, "state")
			f := runFolder(t, &single, watch)
			f.wantService("10.96.0.1")
			folder.write("state", serviceYAML("web", "10.96.0.2"))
			f.untilService("10.96.0.2")
			folder.replace("state", serviceYAML("web", "10.96.0.3"))
			f.untilService("10.96.0.3")
			folder.write("state", serviceYAML("web", "10.96.0.4"))
			f.untilService("10.96.0.4")
			folder.remove("state")
			f.until(func() bool { return len(f.problems) == 1 })
			f.wantService("10.96.0.4")
			folder.write("elsewhere/state", serviceYAML("web", "10.96.0.5"))
			if err := os.Symlink("elsewhere/state", single.dir); err != nil {
				t.Fatal(err)
			}
			f.untilService("10.96.0.5")
			folder.replace("elsewhere/state", serviceYAML("web", "10.96.0.6"))
			f.untilService("10.96.0.6")
			if len(f.state) != 1 {
				t.Errorf("another file in the folder is read, too: %v", f.state)
			}
		})
	}
}

func TestWatchNoticesFileChanges(t *testing.T) {
	for name, watch := range map[string]func(string, *slog.Logger) *watch{"inotify": newWatch, "polling": polling} {
		t.Run(name, func(t *testing.T) {
			folder := newTestFolder(t)
			folder.write("a.yaml", serviceYAML("web", "10.96.0.1"))
			f := runFolder(t, folder, watch)
			f.wantService("10.96.0.1")

			f.write("a.yaml", serviceYAML("web", "10.96.0.2"))
			f.untilService("10.96.0.2")

			f.replace("a.yaml", serviceYAML("web", "10.96.0.3"))
			f.untilService("10.96.0.3")

			f.replace("a.yaml", "kind: [")
			f.until(func() bool { return len(f.problems) == 1 })
			f.wantService("10.96.0.3")
			f.write("a.yaml", serviceYAML("web", "10.96.0.4"))
			f.untilService("10.96.0.4")
			f.wantProblems()

			f.write("x/y/z/b.yaml", serviceYAML("db", "10.96.0.5"))
			f.until(func() bool { return f.state["Service default/db"] != "" })
			f.write("x/y/z/b.yaml", serviceYAML("db", "10.96.0.6"))
			f.until(func() bool { return strings.Contains(f.state["Service default/db"], "10.96.0.6") })
			rename(t, f.dir, "x/y", "x/moved")
			f.remove("x")
			f.until(func() bool { return f.state["Service default/db"] == "" })
			f.write("x/y/z/b.yaml", serviceYAML("db", "10.96.0.7"))
			f.until(func() bool { return f.state["Service default/db"] != "" })
		})
	}
}

func TestWatchSeesAConfigMapMountChange(t *testing.T) {
	folder := newTestFolder(t)
	folder.write("..1/web.yaml", serviceYAML("web", "10.96.0.1"))
	link(t, folder.dir, "..1", "..data")
	link(t, folder.dir, "..data/web.yaml", "web.yaml")
	f := runFolder(t, folder, newWatch)
	f.wantService("10.96.0.1")
	for generation := 2; generation < 5; generation++ {
		f.write(fmt.Sprintf("..%d/web.yaml", generation), serviceYAML("web", fmt.Sprintf("10.96.0.%d", generation)))
		link(t, f.dir, fmt.Sprintf("..%d", generation), "..data_tmp")
		rename(t, f.dir, "..data_tmp", "..data")
		f.remove(fmt.Sprintf("..%d", generation-1))
		f.untilService(fmt.Sprintf("10.96.0.%d", generation))
	}
	f.wantProblems()
}

func TestWatchSeesTheFolderBeingReplaced(t *testing.T) {
	root := t.TempDir()
	for _, version := range []string{"1", "2"} {
		other := &testFolder{t: t, dir: filepath.Join(root, version)}
		other.write("web.yaml", serviceYAML("web", "10.96.0."+version))
	}
	link(t, root, "1", "current")
	f := runFolder(t, &testFolder{t: t, dir: filepath.Join(root, "current"), state: make(map[string]string)}, newWatch)
	f.wantService("10.96.0.1")

	link(t, root, "2", "next")
	rename(t, root, "next", "current")
	f.untilService("10.96.0.2")
	f.write("web.yaml", serviceYAML("web", "10.96.0.22"))
	f.untilService("10.96.0.22")

	f.remove(".")
	f.until(func() bool { return len(f.problems) == 1 })
	f.wantService("10.96.0.22")
	f.write("web.yaml", serviceYAML("web", "10.96.0.3"))
	f.untilService("10.96.0.3")
	f.until(func() bool { return len(f.problems) == 0 })
}

func TestWatchSeesAFileChangeBehindALink(t *testing.T) {
	folder, elsewhere := newTestFolder(t), newTestFolder(t)
	elsewhere.write("real.txt", serviceYAML("web", "10.96.0.1"))
	link(t, folder.dir, filepath.Join(elsewhere.dir, "real.txt"), "web.yaml")
	f := runFolder(t, folder, newWatch)
	elsewhere.write("real.txt", serviceYAML("web", "10.96.0.2"))
	f.untilService("10.96.0.2")
}

func TestWatchMergesABurstIntoFewUpdates(t *testing.T) {
	f := runFolder(t, newTestFolder(t), newWatch)
	const files = 300
	for i := range files {
		f.write(fmt.Sprintf("%03d.yaml", i), serviceYAML(fmt.Sprintf("s%d", i), fmt.Sprintf("10.96.%d.%d", 1+i/250, i%250)))
	}
	f.until(func() bool { return len(f.state) == files })
	if f.count > 50 {
		t.Errorf("%d files caused %d updates, want at most 50", files, f.count)
	}
}

func TestWatchIgnoresChangesThatChangeNothing(t *testing.T) {
	folder := newTestFolder(t)
	folder.write("a.yaml", serviceYAML("web", "10.96.0.1"))
	f := runFolder(t, folder, newWatch)
	f.replace("a.yaml", "# a comment\n"+serviceYAML("web", "10.96.0.1"))
	f.write("readme.txt", "hello")
	f.write("b.yaml", serviceYAML("db", "10.96.0.2"))
	f.until(func() bool { return f.state["Service default/db"] != "" })
	if f.count != 2 {
		t.Errorf("%d updates arrived, want the first and that of the new Service", f.count)
	}
}

func TestWatchThatLosesInotifyLogsItOnceAndPolls(t *testing.T) {
	var log bytes.Buffer
	w := newWatch(t.TempDir(), slog.New(slog.NewTextHandler(&log, nil)))
	w.poll = time.Millisecond
	w.switchToPolling(errors.New("no space left on device"))
	for range 3 {
		w.watchTree()
		if !w.wait(t.Context()) {
			t.Fatal("wait() = false, although the context has not ended")
		}
	}
	w.close()
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "no space left on device") {
		t.Errorf("log = %q, want one line with the cause", got)
	}
}

func TestRunFailsWhenTheFolderIsMissingAtTheStart(t *testing.T) {
	manifests := NewManifests(filepath.Join(t.TempDir(), "missing"), convert.View{}, slog.New(slog.DiscardHandler))
	err := manifests.Run(t.Context(), func(convert.Update) { t.Error("an update was delivered") })
	if err == nil || !strings.Contains(err.Error(), "no such file or directory") {
		t.Errorf("Run() = %v, want an error for the missing folder", err)
	}
}

// replace writes a file as careful editors do: a new file that replaces the old one. No reader sees a part of it.
func (f *testFolder) replace(name, text string) {
	f.t.Helper()
	f.write("."+name+".swp", text)
	rename(f.t, f.dir, "."+name+".swp", name)
}

func rename(t *testing.T, dir, from, to string) {
	t.Helper()
	if err := os.Rename(filepath.Join(dir, from), filepath.Join(dir, to)); err != nil {
		t.Fatal(err)
	}
}

func link(t *testing.T, dir, target, name string) {
	t.Helper()
	if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
}

// The documents are written one after the other, with pauses that are longer than any burst. Only objects that are
// missing in the end are removed, and only then.
func TestSlowlyWrittenFileRemovesNothing(t *testing.T) {
	document := func(name, clusterIP string) string {
		const text = "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s}\nspec: {clusterIP: %s, ports: [{port: 80}]}\n"
		return fmt.Sprintf(text, name, clusterIP)
	}
	all := []string{document("a", "10.96.0.1"), document("b", "10.96.0.2"), document("c", "10.96.0.3")}
	folder := newTestFolder(t)
	folder.write("all.yaml", strings.Join(all, ""))
	f := runFolder(t, folder, newWatch)
	for written := range all {
		f.write("all.yaml", strings.Join(all[:written+1], "")+"# and more\n")
		time.Sleep(burstTime + 2*quietTime)
	}
	select {
	case update := <-f.updates:
		t.Errorf("update while the file is being written: %+v", update.Change)
	default:
	}
	f.write("all.yaml", all[0])
	f.until(func() bool { return f.state["Service default/b"] == "" && f.state["Service default/c"] == "" })
	if f.state["Service default/a"] == "" {
		t.Error("the remaining Service was deleted")
	}
}
