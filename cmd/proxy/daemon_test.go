//go:build linux

package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/testkit/netns"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// waitTimeout is how long to wait for something that is immediate on an idle machine.
const waitTimeout = wait.Timeout

// asProxy is the environment variable that makes the test's program the proxy.
const asProxy = "RUN_AS_PROXY"

// TestMain runs the proxy instead of the tests in a process that startDaemon started. A daemon inside the tests' own
// process would use two network namespaces: its goroutines run on other threads than the test, which are in another
// namespace.
func TestMain(m *testing.M) {
	if os.Getenv(asProxy) != "" {
		main()
	}
	os.Exit(m.Run())
}

// daemonUnderTest is a `proxy run` in its own namespace.
type daemonUnderTest struct {
	namespace *netns.Namespace
	process   *os.Process
	stdout    *bufio.Reader
	exited    chan outcome
}

// startDaemon starts `proxy run` with additional arguments, and waits for the line about the first sync.
func startDaemon(t *testing.T, namespace *netns.Namespace, args ...string) *daemonUnderTest {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	read, write := io.Pipe()
	var stderr strings.Builder
	command := namespace.Command(program, append(splitArgs("run --node node-a"), args...)...)
	command.Env = append(os.Environ(), asProxy+"=1")
	command.Stdout, command.Stderr = write, &stderr
	namespace.Do(func() { err = command.Start() })
	if err != nil {
		t.Fatal(err)
	}
	d := &daemonUnderTest{
		namespace: namespace, process: command.Process, stdout: bufio.NewReader(read), exited: make(chan outcome, 1),
	}
	go func() {
		_ = command.Wait() // the exit status shows errors
		_ = write.Close()
		d.exited <- outcome{status: command.ProcessState.ExitCode(), stderr: stderr.String()}
	}()
	if line, err := d.stdout.ReadString('\n'); !strings.HasPrefix(line, "the first sync is in the kernel: node node-a, Services: 1, took ") {
		_ = command.Process.Kill()
		t.Fatalf("the first line is %q (%v); the daemon exited with %+v", line, err, <-d.exited)
	}
	return d
}

// stop stops the daemon by a signal, and returns its output and exit status.
func (d *daemonUnderTest) stop(t *testing.T) outcome {
	t.Helper()
	if err := d.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case result := <-d.exited:
		return result
	case <-time.After(waitTimeout):
		t.Fatal("the daemon did not exit")
		return outcome{}
	}
}

// get requests a page of one of the daemon's servers. The server may start a little later than the first sync ends.
func (d *daemonUnderTest) get(t *testing.T, address, path string) (status int, body string) {
	t.Helper()
	var connection net.Conn
	var err error
	wait.Until(t, "the daemon listens on "+address, func() bool {
		d.namespace.Do(func() { connection, err = net.DialTimeout("tcp", address, waitTimeout) })
		return err == nil
	})
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

// manifestsCopy returns a folder with a copy of testdata/state that the test may change.
func manifestsCopy(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(stateFolder)); err != nil {
		t.Fatal(err)
	}
	return dir
}

// goodManifests returns a copy of testdata/state without the invalid objects.
func goodManifests(t *testing.T) string {
	t.Helper()
	dir := manifestsCopy(t)
	if err := os.Remove(filepath.Join(dir, "refused.yaml")); err != nil {
		t.Fatal(err)
	}
	return dir
}

// listRules returns the kernel's list of our IPv4 table; empty if the table does not exist.
func listRules(namespace *netns.Namespace) string {
	listed, err := namespace.Try("nft", "list", "table", "ip", "vicinity")
	if err != nil {
		return ""
	}
	return listed
}
