//go:build linux

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/netnstest"
)

// patience is how long something may take that happens at once on an idle machine.
const patience = 20 * time.Second

// daemonUnderTest is a `proxy run` in a namespace of its own.
type daemonUnderTest struct {
	namespace *netnstest.Namespace
	stdout    *bufio.Reader
	stop      context.CancelFunc
	ended     chan outcome
}

// startDaemon starts `proxy run` with more arguments, and waits for the line that says that the first sync is in the kernel.
func startDaemon(t *testing.T, namespace *netnstest.Namespace, args ...string) *daemonUnderTest {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	read, write := io.Pipe()
	d := &daemonUnderTest{namespace: namespace, stdout: bufio.NewReader(read), stop: stop, ended: make(chan outcome, 1)}
	go namespace.Do(func() {
		var stderr strings.Builder
		status := run(ctx, append(words("run --node node-a"), args...), write, &stderr)
		_ = write.Close()
		d.ended <- outcome{status: status, stderr: stderr.String()}
	})
	t.Cleanup(stop)
	if line, err := d.stdout.ReadString('\n'); !strings.HasPrefix(line, "the first sync is in the kernel: node node-a, Services: 1, took ") {
		stop()
		t.Fatalf("the first line is %q (%v); the daemon ended with %+v", line, err, <-d.ended)
	}
	return d
}

// end stops the daemon as a signal does, and returns what it left behind.
func (d *daemonUnderTest) end(t *testing.T) outcome {
	t.Helper()
	d.stop()
	select {
	case ended := <-d.ended:
		return ended
	case <-time.After(patience):
		t.Fatal("the daemon does not end")
		return outcome{}
	}
}

// get asks one of the daemon's servers.
func (d *daemonUnderTest) get(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	var connection net.Conn
	var err error
	d.namespace.Do(func() { connection, err = net.DialTimeout("tcp", address, patience) })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = connection.Close() }()
	fmt.Fprintf(connection, "GET %s HTTP/1.0\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(text)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		if holds() {
			return
		}
	}
	t.Fatalf("not after %s: %s", patience, what)
}

// manifestsCopy returns a folder with a copy of testdata/state that the test may change.
func manifestsCopy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(state)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// rules returns how the kernel lists our IPv4 table, empty if it is not there.
func rules(namespace *netnstest.Namespace) string {
	listed, err := namespace.Try("nft", "list", "table", "ip", "vicinity")
	if err != nil {
		return ""
	}
	return listed
}
