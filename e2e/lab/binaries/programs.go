package binaries

import "path/filepath"

// Programs knows where the built programs are.
type Programs struct {
	folders map[string]string // by module
}

// Path returns the file of a program of a module. It panics if that module was not among those that were built: a
// mistake in the lab's code.
func (p Programs) Path(module Module, program string) string {
	folder, ok := p.folders[module.name]
	if !ok {
		panic("binaries: module " + module.name + " was not built")
	}
	return filepath.Join(folder, program)
}

// Folder returns the folder of a module's programs. It panics as Path does.
func (p Programs) Folder(module Module) string { return p.Path(module, "") }
