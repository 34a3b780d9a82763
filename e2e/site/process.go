package site

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// Process is a program that runs on a machine, with its output.
type Process struct {
	*fabric.Process
	Log *logs.Log

	machine *fabric.Namespace
}

// Start starts a program on a machine. If the test fails, its output is logged.
func Start(t testing.TB, machine *fabric.Namespace, command *exec.Cmd) *Process {
	t.Helper()
	log := logs.New(t, filepath.Base(command.Path)+" on "+machine.Name)
	command.Stdout, command.Stderr = log, log
	process, err := machine.Start(command)
	must.Succeed(t, err)
	return &Process{process, log, machine}
}

// HasExited reports whether the program has exited.
func (p *Process) HasExited() bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// WaitFor waits until a step succeeds. It fails the test if the program ends.
func (p *Process) WaitFor(t testing.TB, what string, step func() error) {
	t.Helper()
	wait.Success(t, what, func() error {
		if p.HasExited() {
			t.Fatalf("the program exited (%s) before: %s; output:\n%s", p.State(), what, p.Log)
		}
		return step()
	})
}

// Metric reads the metrics at an address of the machine, and returns the sum of those with the given name and labels,
// such as a="b".
func (p *Process) Metric(address, name string, labels ...string) (float64, error) {
	text, err := Page(p.machine, address, "/metrics")
	if err != nil {
		return 0, err
	}
	return Metric(text, name, labels...)
}

// Metric returns the sum of the metrics in a page that have the given name and labels, such as a="b".
func Metric(page, name string, labels ...string) (sum float64, err error) {
	found := false
	for lines := bufio.NewScanner(strings.NewReader(page)); lines.Scan(); {
		series, value, _ := strings.Cut(lines.Text(), " ")
		if metric, _, _ := strings.Cut(series, "{"); metric != name || !hasAll(series, labels) {
			continue
		}
		number, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return 0, fmt.Errorf("read metric %s: %w", series, err)
		}
		sum, found = sum+number, true
	}
	if !found {
		return 0, fmt.Errorf("no metric %s with labels %v", name, labels)
	}
	return sum, nil
}

func hasAll(text string, parts []string) bool {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return false
		}
	}
	return true
}

// Page returns a page of a server, requested from a machine. Any status but 200 is an error.
func Page(from *fabric.Namespace, address, path string) (string, error) {
	code, body, err := Get(from, address, path)
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("%s%s: status %d: %s", address, path, code, body)
	}
	return body, err
}

// Get requests a page of a server from a machine.
func Get(from *fabric.Namespace, address, path string) (code int, body string, err error) {
	response, err := Client(from).Get("http://" + address + path)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// Client returns a client that connects from a machine, with a new connection for each request.
func Client(from *fabric.Namespace) *http.Client {
	const timeout = 30 * time.Second
	return &http.Client{Timeout: timeout, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(_ context.Context, network, address string) (net.Conn, error) {
			return from.Dial(network, address, timeout)
		},
	}}
}
