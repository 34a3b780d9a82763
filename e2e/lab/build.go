package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/e2e/lab/cluster"
)

func newBuild() *cobra.Command {
	return &cobra.Command{
		Use:   "build",
		Short: "Build the cluster's programs, which up also does if needed",
		Long: `Build the cluster's programs and keep them in your cache folder (vicinity/lab), as "lab up" does if needed. This
includes programs that only tests use: kube-proxy's endpoint selection and xDS clients.

Each set of programs is built once for each version of its module in e2e/lab/build and of Go. runc needs a C compiler and
the headers of libseccomp (on Debian: gcc, libc6-dev and libseccomp-dev).`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := binaries.Build(cmd.Context(), cmd.ErrOrStderr(), append(binaries.All, binaries.Categorize, binaries.XDS)...)
			return err
		},
	}
}

// ownPrograms are this repository's programs that run in the cluster.
var ownPrograms = []string{"./e2e/lab/image/pause", "./e2e/lab/node/init", "./e2e/lab/node/mount", "./e2e/probe"}

// buildOwnPrograms builds ownPrograms statically, because the nodes have no shared libraries.
func buildOwnPrograms(ctx context.Context, folder cluster.Folder) error {
	if err := os.MkdirAll(folder.OwnPrograms(), 0o755); err != nil {
		return fmt.Errorf("create folder: %w", err)
	}
	root, err := binaries.Root(ctx)
	if err != nil {
		return err
	}
	args := append([]string{"build", "-trimpath", "-buildvcs=false", "-o", folder.OwnPrograms() + string(filepath.Separator)}, ownPrograms...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build the probe and the nodes' own programs: %w\n%s", err, output)
	}
	return nil
}
