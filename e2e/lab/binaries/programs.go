package binaries

import "path/filepath"

// Programs locates the programs that were built.
type Programs struct {
	folders map[string]string // by module
}

// Path returns the path of a module's program. It panics if the module was not passed to Build, which is a bug in the
// lab's code.
func (p Programs) Path(module Module, program string) string {
	folder, ok := p.folders[module.name]
	if !ok {
		panic("binaries: module " + module.name + " was not built")
	}
	return filepath.Join(folder, program)
}

// Folder returns the folder of a module's programs. It panics in the same case as Path.
func (p Programs) Folder(module Module) string { return p.Path(module, "") }
