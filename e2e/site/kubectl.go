package site

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// Kubectl runs kubectl with cluster-admin rights, and returns its standard output. It fails the test if kubectl fails.
func (s *Site) Kubectl(t testing.TB, arguments ...string) string {
	t.Helper()
	printed, err := s.TryKubectl(t.Context(), arguments...)
	must.Succeed(t, err)
	return printed
}

// TryKubectl runs kubectl with cluster-admin rights, and returns its standard output. The error contains its standard
// error.
func (s *Site) TryKubectl(ctx context.Context, arguments ...string) (string, error) {
	program := s.Programs.Path(binaries.Kubernetes, "kubectl")
	return s.run(exec.CommandContext(ctx, program, append([]string{"--kubeconfig", s.AdminKubeconfig()}, arguments...)...))
}

// Shell runs shell commands of a README like a user: in the root folder of the repository, with cluster-admin rights
// for kubectl. It stops at the first command that fails. Environment variables have the form NAME=VALUE. It returns the
// standard output.
func (s *Site) Shell(ctx context.Context, commands string, variables ...string) (string, error) {
	shell := exec.CommandContext(ctx, "sh", "-euc", commands)
	var err error
	if shell.Dir, err = repository(); err != nil {
		return "", err
	}
	path := filepath.Join(s.Programs.Folder(binaries.Kubernetes)) + ":" + os.Getenv("PATH")
	shell.Env = append(os.Environ(), append(variables, "KUBECONFIG="+s.AdminKubeconfig(), "PATH="+path)...)
	return s.run(shell)
}

// run runs a command on the machine of the control plane.
func (s *Site) run(command *exec.Cmd) (string, error) {
	if s.config.Namespace != nil {
		return s.config.Namespace.Run(command)
	}
	var output, stderr bytes.Buffer
	command.Stdout, command.Stderr = &output, &stderr
	if err := command.Run(); err != nil {
		return output.String(), fmt.Errorf("run %s: %w: %s", strings.Join(command.Args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return output.String(), nil
}
