package manifests

import (
	"os"
	"path/filepath"

	"github.com/vicinity-proxy/vicinity/pkg/manifest"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Objects reads the objects of a folder as they are written. If an object appears twice, the first one counts, by file
// name, then by position. Unreadable parts are returned as findings. It fails if the folder cannot be read.
func Objects(dir string) (convert.Objects, []model.Finding, error) {
	found, err := manifest.Scan(dir)
	if err != nil {
		return convert.Objects{}, nil, err
	}
	d := newObjectDecoder()
	for name, failure := range found.Unreadable {
		d.problems = append(d.problems, unreadableProblem(name, failure))
	}
	for _, name := range found.Files {
		if err := d.readFile(found.Dir, name); err != nil {
			d.problems = append(d.problems, unreadableProblem(name, err))
		}
	}
	return d.objects, convert.SortProblems(d.problems), nil
}

// ObjectsOf reads the objects of a stream as Objects does.
func ObjectsOf(stream *Stream) (convert.Objects, []model.Finding) {
	d := newObjectDecoder()
	d.readText(stream.Name, stream.Text)
	return d.objects, convert.SortProblems(d.problems)
}

func newObjectDecoder() objectDecoder {
	return objectDecoder{objects: convert.Objects{FolderInventory: convert.Inventory{}}, seen: map[convert.ObjectKey]string{}}
}

type objectDecoder struct {
	objects  convert.Objects
	problems []model.Finding
	seen     map[convert.ObjectKey]string // by object, the file that has it
}

func (d *objectDecoder) readFile(dir, name string) error {
	file, err := os.Open(filepath.Join(dir, name))
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // nothing was written that closing could lose
	text, err := manifest.Read(name, file)
	if err != nil {
		return err
	}
	d.readText(name, text)
	return nil
}

func (d *objectDecoder) readText(name string, text []byte) {
	dec := decoder{file: name, out: contents{inventory: d.objects.FolderInventory}}
	dec.read(text, func(part *manifest.Part) { d.readObject(name, part) })
	d.problems = append(d.problems, dec.out.problems...)
}

func (d *objectDecoder) readObject(file string, part *manifest.Part) {
	key := keyOf(part)
	object := key.Kind.New()
	rejected, ignored := decodeObject(file, part, key, object)
	d.problems = append(append(d.problems, rejected...), ignored...)
	if len(rejected) > 0 {
		return
	}
	if first, seen := d.seen[key]; seen {
		d.problems = append(d.problems, key.Problem(file, "", "the same object is already in "+first+", and that version is used"))
		return
	}
	d.seen[key] = file
	d.objects.Add(object)
}
