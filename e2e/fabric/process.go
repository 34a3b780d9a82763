package fabric

import (
	"bytes"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Process is a program that runs in a namespace. It ends with the fabric, and with this process even if this process is
// killed.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program inside the namespace, in its own process group, so that Ctrl-C at the terminal reaches only
// this process. The fabric waits for the program: do not call cmd.Wait.
func (n *Namespace) Start(cmd *exec.Cmd) (*Process, error) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid = true
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	if cmd.WaitDelay == 0 {
		cmd.WaitDelay = time.Second
	}
	if err := n.fabric.spawner.start(n.enter, cmd); err != nil {
		return nil, fmt.Errorf("start %s on %s: %w", cmd.Path, n.Name, err)
	}
	process := &Process{cmd: cmd, done: make(chan struct{})}
	go func() {
		process.err = cmd.Wait()
		close(process.done)
	}()
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	n.fabric.processes = append(n.fabric.processes, process)
	return process, nil
}

// Run runs a program inside the namespace until it exits, and returns its standard output. The error contains its
// standard error.
func (n *Namespace) Run(cmd *exec.Cmd) (output string, err error) {
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if cmd.WaitDelay == 0 { // on a busy machine the output arrives late
		cmd.WaitDelay = time.Minute
	}
	process, err := n.Start(cmd)
	if err != nil {
		return "", err
	}
	if err := process.Wait(); err != nil {
		err = fmt.Errorf("run %s on %s: %w: %s", strings.Join(cmd.Args, " "), n.Name, err, bytes.TrimSpace(stderr.Bytes()))
		return stdout.String(), err
	}
	return stdout.String(), nil
}

// PID returns the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has exited.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has exited and returns the result of exec.Cmd.Wait.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// State waits until the process has exited and returns how, such as "exit status 1" or "signal: killed".
func (p *Process) State() string {
	<-p.done
	return p.cmd.ProcessState.String()
}

// Signal sends a signal to the process group.
func (p *Process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("send %s to %s: process has exited", signal, p.cmd.Path)
	default:
	}
	if err := syscall.Kill(-p.PID(), signal); err != nil {
		return fmt.Errorf("send %s to %s: %w", signal, p.cmd.Path, err)
	}
	return nil
}

// Stop sends SIGTERM, and kills the process after the timeout. It returns the result of exec.Cmd.Wait.
func (p *Process) Stop(timeout time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // it may have exited already
	select {
	case <-p.done:
	case <-time.After(timeout):
		_ = p.Kill() // it may have exited already
	}
	return p.Wait()
}

// Kill sends SIGKILL to the process group and waits until the process has exited. Until then the kernel keeps the
// process's resources, such as nftables tables that it owns. Kill returns an error if the process has already exited.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// spawner starts all child processes from one thread that lives as long as the fabric. The kernel sends the
// parent-death signal when the *thread* that started a child ends (prctl(2), PR_SET_PDEATHSIG), and the Go runtime may
// end any thread.
type spawner struct {
	calls chan func()
	ended chan struct{}
}

func newSpawner() *spawner {
	s := &spawner{calls: make(chan func()), ended: make(chan struct{})}
	go s.serve()
	return s
}

func (s *spawner) serve() {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	for {
		select {
		case call := <-s.calls:
			call()
		case <-s.ended:
			return
		}
	}
}

func (s *spawner) start(enter func() error, cmd *exec.Cmd) error {
	result := make(chan error, 1)
	call := func() { result <- runMoved(enter, cmd.Start) }
	select {
	case s.calls <- call:
		return <-result
	case <-s.ended:
		return errClosed
	}
}

// end ends the thread. It may be called twice, but not concurrently.
func (s *spawner) end() {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
}
