package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

// The keeper is this program once more, in the background: it starts the cluster and is the parent of all its
// processes. It runs in a session and a mount namespace of its own.

// reportFD is the file descriptor on which the keeper reports progress to its starter, one JSON object per line.
const reportFD = 3

// message is one line of the report.
type message struct {
	Step  string `json:"step,omitempty"` // a completed step
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

// startKeeper starts a keeper and waits until the cluster is ready. If it is not, the keeper has exited.
func startKeeper(ctx context.Context, progress io.Writer, options cluster.Options) error {
	text, err := json.Marshal(options)
	if err != nil {
		return fmt.Errorf("encode the lab's options: %w", err)
	}
	if err := os.MkdirAll(options.Folder.Logs(), 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	log, err := os.Create(filepath.Join(options.Folder.Logs(), "keeper.log"))
	if err != nil {
		return fmt.Errorf("open the keeper's log: %w", err)
	}
	defer log.Close() // the child has its own
	reader, writer, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("create pipe for the keeper's report: %w", err)
	}
	defer reader.Close()
	cmd := exec.Command("/proc/self/exe", "keeper", string(text)) // `go run` deletes the executable while it runs
	cmd.Stdout, cmd.Stderr = log, log
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Unshareflags: unix.CLONE_NEWNS}
	if err := errors.Join(cmd.Start(), writer.Close()); err != nil {
		return fmt.Errorf("start the lab's keeper: %w", err)
	}
	// Ctrl-C does not reach another session.
	defer context.AfterFunc(ctx, func() { _ = cmd.Process.Signal(unix.SIGTERM) })()
	if printProgress(reader, progress) {
		return cmd.Process.Release()
	}
	return errors.Join(errors.New("failed to start the cluster"), cmd.Wait())
}

// printProgress prints the report until the cluster is ready or the keeper has exited.
func printProgress(from io.Reader, progress io.Writer) (ready bool) {
	for lines := bufio.NewScanner(from); lines.Scan(); {
		var m message
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			m.Error = lines.Text() // only the keeper writes here
		}
		switch {
		case m.Ready:
			return true
		case m.Error != "":
			fmt.Fprintln(progress, m.Error)
		default:
			fmt.Fprintln(progress, m.Step)
		}
	}
	return false
}

func newKeeper() *cobra.Command {
	return &cobra.Command{
		Use:    "keeper OPTIONS",
		Hidden: true, // called by up
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var options cluster.Options
			if err := json.Unmarshal([]byte(args[0]), &options); err != nil {
				return fmt.Errorf("read the lab's options: %w", err)
			}
			starter := json.NewEncoder(os.NewFile(reportFD, "report"))
			send := func(m message) { _ = starter.Encode(m) } // if the starter has exited, no report is needed
			err := runKeeper(cmd.Context(), send, options)
			if err != nil && cmd.Context().Err() == nil { // a user who interrupted us needs no error
				send(message{Error: err.Error()})
			}
			return err
		},
	}
}

// runKeeper runs a cluster until the context ends.
func runKeeper(ctx context.Context, send func(message), options cluster.Options) error {
	if err := takeLock(options.Folder); err != nil {
		return err
	}
	programs, err := binaries.Build(ctx, io.Discard, binaries.All...)
	if err != nil {
		return err
	}
	start := time.Now()
	step := func(format string, args ...any) {
		send(message{Step: fmt.Sprintf("%5.1fs  ", time.Since(start).Seconds()) + fmt.Sprintf(format, args...)})
	}
	running, err := cluster.Start(ctx, cluster.Config{
		Options: options, Programs: programs, Groups: groupsOf(options.Folder), Step: step,
	})
	if err != nil {
		return err
	}
	send(message{Ready: true})
	running.Run(ctx, os.Stderr) // stderr is the keeper's log
	return running.Close()
}

// groupsOf returns the name of a lab's cgroups, which it derives from the lab's folder.
func groupsOf(folder cluster.Folder) string {
	sum := sha256.Sum256([]byte(folder))
	return "vicinity-lab-" + hex.EncodeToString(sum[:4])
}
