package main

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/node"
)

// logs is the folder of the programs' logs. Tests change it.
var logs = "/var/log"

const (
	socketTimeout = time.Minute
	pollInterval  = 20 * time.Millisecond
)

// environment is the complete environment of the node's programs.
var environment = []string{
	"HOME=/root",
	"PATH=" + node.ProgramPath,
}

// childExit is a process that exited.
type childExit struct {
	pid    int
	status unix.WaitStatus
}

// supervise starts the programs one after the other and waits until one of them exits, which ends the node.
func supervise(programs []node.Program) error {
	running := map[int]string{}
	var exits chan childExit
	for _, program := range programs {
		pid, err := start(program)
		if err != nil {
			return err
		}
		running[pid] = program.Name
		if exits == nil { // wait4 fails while there are no children
			exits = make(chan childExit)
			go reapChildren(exits)
		}
		if err := waitForSocket(program, running, exits); err != nil {
			return err
		}
	}
	for child := range exits {
		if err := fatalExit(running, child); err != nil {
			return err
		}
	}
	return errors.New("there are no processes left")
}

// fatalExit returns an error if the exit of the process ends the node. The error contains the process's last log
// lines, because the logs are removed with the lab.
func fatalExit(running map[int]string, child childExit) error {
	name, isProgram := running[child.pid]
	if !isProgram {
		return nil // a container's process
	}
	status := fmt.Sprintf("exit status %d", child.status.ExitStatus())
	if child.status.Signaled() {
		status = fmt.Sprintf("signal: %s", child.status.Signal())
	}
	return fmt.Errorf("%s exited: %s; its log ends with:\n%s", name, status, lastLines(filepath.Join(logs, name+".log")))
}

// lastLines returns the last 2 KiB of a log, without surrounding white space.
func lastLines(path string) []byte {
	text, err := os.ReadFile(path)
	if err != nil {
		return []byte(err.Error())
	}
	return bytes.TrimSpace(text[max(0, len(text)-2048):])
}

// reapChildren reaps all child processes that exit, the node's programs and orphans, and sends them to the channel.
func reapChildren(exits chan<- childExit) {
	defer close(exits)
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch err {
		case nil:
			exits <- childExit{pid: pid, status: status}
		case unix.EINTR:
		default:
			return
		}
	}
}

func start(program node.Program) (pid int, err error) {
	log, err := os.OpenFile(filepath.Join(logs, program.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return 0, fmt.Errorf("open the log of %s: %w", program.Name, err)
	}
	defer log.Close() // the child has its own
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", program.Name, err)
	}
	defer null.Close()
	arguments := append([]string{program.Path}, program.Arguments...)
	pid, err = syscall.ForkExec(program.Path, arguments, &syscall.ProcAttr{
		Dir:   "/",
		Env:   environment,
		Files: []uintptr{null.Fd(), log.Fd(), log.Fd()},
	})
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", program.Name, err)
	}
	return pid, nil
}

// waitForSocket waits until the program listens on its socket.
func waitForSocket(program node.Program, running map[int]string, exits <-chan childExit) error {
	if program.Socket == "" {
		return nil
	}
	deadline := time.After(socketTimeout)
	for {
		connection, err := net.Dial("unix", program.Socket)
		if err == nil {
			return connection.Close()
		}
		select {
		case child := <-exits:
			if err := fatalExit(running, child); err != nil {
				return err
			}
		case <-deadline:
			return fmt.Errorf("%s does not listen on %s after %s", program.Name, program.Socket, socketTimeout)
		case <-time.After(pollInterval):
		}
	}
}
