package image

import (
	"debug/elf"
	"fmt"
	"slices"
)

// checkStatic returns an error if a program cannot run in an image without other files.
func checkStatic(program string) error {
	file, err := elf.Open(program)
	if err != nil {
		return fmt.Errorf("read the program %s: %w", program, err)
	}
	defer file.Close()
	if slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		return fmt.Errorf("the program %s is not static: it needs a dynamic linker, and the image has none", program)
	}
	return nil
}
