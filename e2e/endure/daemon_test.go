package endure_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
)

// metricsAddress is where the proxy serves its metrics unless it is told otherwise.
const metricsAddress = "127.0.0.1:10249"

// daemon is one life of `proxy run` on the node.
type daemon struct {
	site    *site
	process *fabric.Process
	began   time.Time
	stdout  *output
	log     *output
}

// output is what a process has written so far.
type output struct {
	mutex   sync.Mutex
	written bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.written.Write(p)
}

func (o *output) String() string {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.written.String()
}

// start starts the proxy and does not wait for anything.
func (s *site) start(args ...string) *daemon {
	s.t.Helper()
	d := &daemon{site: s, began: time.Now(), stdout: &output{}, log: &output{}}
	command := exec.Command(program, slices.Concat([]string{"run", "--node", s.node.Name}, s.state(), args)...)
	command.Stdout, command.Stderr = d.stdout, d.log
	var err error
	d.process, err = s.node.Start(command)
	must(s.t, err)
	return d
}

// synced reports whether the first sync is in the kernel.
func (d *daemon) synced() bool {
	return strings.HasPrefix(d.stdout.String(), "the first sync is in the kernel: ")
}

// awaitSync waits for the first sync and returns how long after the start it came.
func (d *daemon) awaitSync() time.Duration {
	d.site.t.Helper()
	eventually(d.site.t, "the first sync of a proxy whose log is: "+d.log.String(), func() bool {
		select {
		case <-d.process.Done():
			d.site.t.Fatalf("the proxy ended by itself (%s):\n%s", d.process.State(), d.log)
		default:
		}
		return d.synced()
	})
	return time.Since(d.began)
}

// kill ends the proxy without a warning.
func (d *daemon) kill() {
	d.site.t.Helper()
	if err := d.process.Signal(syscall.SIGKILL); err != nil {
		d.site.t.Fatalf("%v, before it was killed:\n%s", err, d.log)
	}
	if state := d.process.State(); state != "signal: killed" {
		d.site.t.Fatalf("the proxy ended with %s:\n%s", state, d.log)
	}
}

// failedSyncs returns the lines of the log that tell of failures.
func (d *daemon) failedSyncs() []string {
	var lines []string
	for line := range strings.Lines(d.log.String()) {
		if strings.Contains(line, "level=ERROR") {
			lines = append(lines, line)
		}
	}
	return lines
}

// metric returns the sum of the series of a metric with all of the given labels, such as operation="add".
func (d *daemon) metric(name string, labels ...string) int {
	d.site.t.Helper()
	text, err := d.metrics()
	must(d.site.t, err)
	sum, found := 0.0, false
	for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
		series, value, _ := strings.Cut(scanner.Text(), " ")
		if of, _, _ := strings.Cut(series, "{"); of != name || !containsAll(series, labels) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		must(d.site.t, err)
		sum, found = sum+number, true
	}
	if !found {
		d.site.t.Fatalf("there is no metric %s with %v:\n%s", name, labels, text)
	}
	return int(sum)
}

func containsAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

func (d *daemon) metrics() (text string, err error) {
	conn, err := d.site.node.Dial("tcp", metricsAddress, patience)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	fmt.Fprint(conn, "GET /metrics HTTP/1.0\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}
