package binaries

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"
)

// ProgramsEnv is the environment variable with a folder of Kubernetes programs to use instead of building them, such as
// those of another release. The files have Kubernetes' own names: kube-apiserver, kubectl and so on.
const ProgramsEnv = "KUBERNETES_PROGRAMS"

// Build returns the programs of the modules. Modules that are not in the cache are built first, which takes minutes and
// is reported to progress. Concurrent calls are safe, also from several processes: one of them builds a module, and the
// others wait.
func Build(ctx context.Context, progress io.Writer, modules ...Module) (Programs, error) {
	root, err := Root(ctx)
	if err != nil {
		return Programs{}, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Programs{}, fmt.Errorf("find the user's cache folder: %w", err)
	}
	programs := Programs{folders: map[string]string{}}
	for _, module := range modules {
		if folder := os.Getenv(ProgramsEnv); folder != "" && module.name == Kubernetes.name {
			fmt.Fprintf(progress, "using Kubernetes programs in %s (%s)\n", folder, ProgramsEnv)
			programs.folders[module.name] = folder
			continue
		}
		builder := builder{
			module:   module,
			source:   filepath.Join(sources(root), module.name),
			cache:    filepath.Join(cache, "vicinity", "lab"),
			progress: progress,
		}
		folder, err := builder.build(ctx)
		if err != nil {
			return Programs{}, fmt.Errorf("build %s: %w", module.name, err)
		}
		programs.folders[module.name] = folder
	}
	return programs, nil
}

// Root returns the root folder of the repository that contains the caller's working folder. Modules inside a module
// cannot be embedded, so their sources are read from there.
func Root(ctx context.Context) (string, error) {
	file, err := run(ctx, "", nil, "env", "GOMOD")
	if err != nil {
		return "", fmt.Errorf("find the repository: %w", err)
	}
	root := filepath.Dir(file)
	if _, err := os.Stat(sources(root)); err != nil {
		return "", fmt.Errorf("find the lab's modules (run this inside a checkout of Vicinity): %w", err)
	}
	return root, nil
}

// sources returns the folder of the modules.
func sources(root string) string { return filepath.Join(root, "e2e", "lab", "build") }

// builder builds one module.
type builder struct {
	module   Module
	source   string // the folder of the module
	cache    string
	progress io.Writer
}

// build returns the folder of the module's programs. It builds them first if necessary.
func (b builder) build(ctx context.Context) (string, error) {
	version, err := b.version(ctx)
	if err != nil {
		return "", err
	}
	key, err := b.key(ctx, version)
	if err != nil {
		return "", err
	}
	folder := filepath.Join(b.cache, b.module.name+"-"+key)
	if isBuilt(folder) {
		return folder, nil
	}
	unlock, err := lock(filepath.Join(b.cache, b.module.name+".lock"))
	if err != nil {
		return "", err
	}
	defer unlock()
	if isBuilt(folder) { // another process built it while we waited
		return folder, nil
	}
	if err := b.module.missing(ctx); err != nil {
		return "", err
	}
	return folder, b.buildInto(ctx, folder, version)
}

// buildInto builds into a temporary folder and renames it, so that an interrupted build leaves no incomplete folder.
func (b builder) buildInto(ctx context.Context, folder, version string) error {
	partial := filepath.Join(b.cache, b.module.name+".partial")
	if err := os.RemoveAll(partial); err != nil { // left by a killed build: we hold the lock
		return fmt.Errorf("remove leftovers of a killed build: %w", err)
	}
	if err := os.MkdirAll(partial, 0o755); err != nil {
		return fmt.Errorf("create folder for the programs: %w", err)
	}
	start := time.Now()
	fmt.Fprintf(b.progress, "building %s %s (the first time about %s) ...\n", b.module.name, version, b.module.timeout)
	if err := b.compile(ctx, partial, version); err != nil {
		return errors.Join(err, os.RemoveAll(partial))
	}
	if err := os.Rename(partial, folder); err != nil {
		return fmt.Errorf("move programs to the cache: %w", err)
	}
	fmt.Fprintf(b.progress, "built %s in %s\n", b.module.name, time.Since(start).Round(time.Second))
	return nil
}

// compile builds the module's programs into a folder.
func (b builder) compile(ctx context.Context, folder, version string) error {
	output := filepath.Join(folder, b.module.program)
	if b.module.program == "" {
		output += string(filepath.Separator) // a folder: each program is named after its package
	}
	commands := [][]string{withOutput(output, b.module.arguments(version))}
	if b.module.test != "" {
		test := filepath.Join(folder, path.Base(b.module.test)+".test")
		commands = append(commands, withOutput(test, b.module.testArguments(version)))
	}
	for _, arguments := range commands {
		if _, err := run(ctx, b.source, b.module.environment(), arguments...); err != nil {
			return err
		}
	}
	return nil
}

// withOutput adds the output path to the arguments of the go command.
func withOutput(output string, arguments []string) []string {
	return append([]string{arguments[0], "-o", output}, arguments[1:]...)
}

// version returns the version of the upstream module that the programs come from, as go.mod states it.
func (b builder) version(ctx context.Context) (string, error) {
	if b.module.upstream == "" {
		return "", nil
	}
	return run(ctx, b.source, b.module.environment(), "list", "-m", "-f", "{{.Version}}", b.module.upstream)
}

func isBuilt(folder string) bool {
	_, err := os.Stat(folder)
	return err == nil
}

// run runs the go command and returns its standard output. An error contains its standard error.
func run(ctx context.Context, folder string, environment []string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", arguments...)
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), environment...)
	var output, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &stderr
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("go %s: %w\n%s", arguments[0], err, bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(output.String()), nil
}
