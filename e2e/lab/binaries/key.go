package binaries

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
)

// key returns a short hash of everything that the programs depend on: the files of the module, which pin all other
// modules by their hashes, the Go version, the machine's architecture, and the build flags.
func (b builder) key(ctx context.Context, version string) (string, error) {
	toolchain, err := run(ctx, b.source, b.module.environment(), "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n%q\n%q\n", toolchain, b.module.environment(), b.module.arguments(version))
	if b.module.test != "" {
		fmt.Fprintf(sum, "%q\n", b.module.testArguments(version))
	}
	entries, err := os.ReadDir(b.source)
	if err != nil {
		return "", fmt.Errorf("read the module: %w", err)
	}
	for _, entry := range entries { // sorted by name
		content, err := os.ReadFile(filepath.Join(b.source, entry.Name()))
		if err != nil {
			return "", fmt.Errorf("read the module: %w", err)
		}
		fmt.Fprintf(sum, "%s %d\n%s", entry.Name(), len(content), content)
	}
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}
