// Package process runs the lab's programs so that they never outlive the lab.
package process

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// NetworkNamespace is a network namespace to run programs in. Do calls f on a thread that is in the namespace until f
// returns. fabric.Namespace implements it.
type NetworkNamespace interface {
	Do(f func() error) error
}

// CurrentNamespace is the network namespace of the caller.
type CurrentNamespace struct{}

// Do calls f on a thread of its own.
func (CurrentNamespace) Do(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		result <- f()
	}()
	return <-result
}

// Process is a running program. It is killed when this process ends, however that happens.
type Process struct {
	// Log is the file that the program writes to.
	Log string

	name string
	cmd  *exec.Cmd
	done chan struct{}
}

// Start starts a program in a network namespace and appends its output to NAME.log in the folder logs. The program gets
// a process group of its own, so that Ctrl-C at the terminal reaches only us.
//
// One thread starts the program and waits for it: the kernel sends the parent-death signal when the *thread* that
// started a child ends (prctl(2), PR_SET_PDEATHSIG), and Go may end any other thread.
func Start(netns NetworkNamespace, logs, name string, cmd *exec.Cmd) (*Process, error) {
	log, err := os.OpenFile(filepath.Join(logs, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the log of %s: %w", name, err)
	}
	defer log.Close() // the child has its own
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	cmd.Stdout, cmd.Stderr = log, log
	p := &Process{Log: log.Name(), name: name, cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	go func() {
		err := netns.Do(func() error {
			if err := cmd.Start(); err != nil {
				return err
			}
			started <- nil
			_ = cmd.Wait() // the exit status is in cmd.ProcessState
			return nil
		})
		started <- err // read only if the program did not start
		close(p.done)
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Stop terminates the process and its descendants, and kills them after the timeout. The process may have exited
// already.
func (p *Process) Stop(timeout time.Duration) error {
	if err := p.signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-p.done:
		return nil
	case <-time.After(timeout):
		return p.Kill()
	}
}

// Kill kills the process and its descendants, and waits until it has exited. The process may have exited already.
func (p *Process) Kill() error {
	if err := p.signal(syscall.SIGKILL); err != nil {
		return err
	}
	<-p.done
	return nil
}

func (p *Process) signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return nil
	default:
	}
	if err := syscall.Kill(-p.PID(), signal); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("send %s to %s: %w", signal, p.name, err)
	}
	return nil
}

// lastLines is the number of log lines in an error.
const lastLines = 8

// ExitError waits until the process has exited, and returns how it exited, with its last output.
func (p *Process) ExitError() error {
	<-p.done
	return fmt.Errorf("%s exited (%s); the end of %s:\n%s", p.name, p.cmd.ProcessState, p.Log, p.LastOutput())
}

// LastOutput returns the end of the process's log.
func (p *Process) LastOutput() string {
	text, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "    " + strings.Join(lines[max(0, len(lines)-lastLines):], "\n    ")
}
