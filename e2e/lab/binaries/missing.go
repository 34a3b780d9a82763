package binaries

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// missing returns an error that names the packages that the machine lacks for building the module. The linker would
// report a missing library only after minutes, and without the package's name.
func (m Module) missing(ctx context.Context) error {
	if m.library == nil {
		return nil
	}
	compiler, err := run(ctx, "", nil, "env", "CC")
	if err != nil {
		return err
	}
	program, _, _ := strings.Cut(compiler, " ")
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("no C compiler found (%s): install the Debian packages gcc and libc6-dev, or your system's", program)
	}
	return m.library.missing(ctx, program)
}

// missing links a small program with the library, in the same way as the module will be linked.
func (l library) missing(ctx context.Context, compiler string) error {
	cmd := exec.CommandContext(ctx, compiler, "-x", "c", "-o", os.DevNull, "-", "-static", "-l"+l.name)
	cmd.Stdin = strings.NewReader("#include <" + l.header + ">\nint main(void) { return 0; }\n")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("headers or static library of %s not found: install the Debian packages %s and "+
			"libc6-dev, or your system's: %w\n%s", l.name, l.debian, err, output)
	}
	return nil
}
