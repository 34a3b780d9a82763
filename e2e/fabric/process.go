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

// Process is a program that runs in a namespace. It ends with the fabric, and with this process even if that is
// killed.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error
}

// Start starts a program inside the namespace, in a process group of its own, so that a Ctrl-C at the terminal reaches
// only us. The fabric waits for it: do not call cmd.Wait.
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
		return nil, fmt.Errorf("starting %s on %s: %w", cmd.Path, n.Name, err)
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

// Run runs a program inside the namespace to its end, and returns what it prints on standard output. The error has
// what it prints on standard error.
func (n *Namespace) Run(cmd *exec.Cmd) (output string, err error) {
	var printed, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &printed, &complaints
	if cmd.WaitDelay == 0 { // on a busy machine what it printed comes late
		cmd.WaitDelay = time.Minute
	}
	process, err := n.Start(cmd)
	if err != nil {
		return "", err
	}
	if err := process.Wait(); err != nil {
		err = fmt.Errorf("running %s on %s: %w: %s", strings.Join(cmd.Args, " "), n.Name, err, bytes.TrimSpace(complaints.Bytes()))
		return printed.String(), err
	}
	return printed.String(), nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits for the end of the process and returns what exec.Cmd.Wait returned.
func (p *Process) Wait() error {
	<-p.done
	return p.err
}

// State waits for the end of the process and says how it ended, such as "exit status 1" or "signal: killed".
func (p *Process) State() string {
	<-p.done
	return p.cmd.ProcessState.String()
}

// Signal sends a signal to the process and to those it started.
func (p *Process) Signal(signal syscall.Signal) error {
	select {
	case <-p.done:
		return fmt.Errorf("sending %s to %s: it has ended", signal, p.cmd.Path)
	default:
	}
	if err := syscall.Kill(-p.PID(), signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, p.cmd.Path, err)
	}
	return nil
}

// Stop asks the process to end, and kills it when the time is over. It returns what exec.Cmd.Wait returned.
func (p *Process) Stop(timeout time.Duration) error {
	_ = p.Signal(syscall.SIGTERM) // it may have ended already
	select {
	case <-p.done:
	case <-time.After(timeout):
		_ = p.Kill() // it may have ended already
	}
	return p.Wait()
}

// Kill ends the process and those it started without a word, and waits for its end: until then the kernel keeps what is the
// process's, such as tables that it owns. It is an error if the process has ended before.
func (p *Process) Kill() error {
	err := p.Signal(syscall.SIGKILL)
	<-p.done
	return err
}

// spawner starts all child processes from one thread that lives as long as the fabric. The kernel sends the
// parent-death signal when the *thread* that started a child ends (prctl(2), PR_SET_PDEATHSIG), and Go ends threads as
// it likes.
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
	call := func() { result <- moved(enter, cmd.Start) }
	select {
	case s.calls <- call:
		return <-result
	case <-s.ended:
		return errClosed
	}
}

// end may be called twice, not at the same time.
func (s *spawner) end() {
	select {
	case <-s.ended:
	default:
		close(s.ended)
	}
}
