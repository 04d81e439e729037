package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// deb is one of Debian's packages in the image.
type deb struct{ name, version, arch, sum string }

// programs is iptables and nftables with their dependencies, for one processor architecture.
type programs struct {
	debs  []deb
	files []byte // a tar file
}

// collect unpacks the packages that programs.sh has downloaded into a folder.
func collect(dir string, date time.Time) (p programs, err error) {
	list, err := filepath.Glob(filepath.Join(dir, "*.deb"))
	if err == nil && len(list) == 0 {
		err = fmt.Errorf("no packages in %s: scripts/image/programs.sh downloads them", dir)
	}
	if err != nil {
		return p, err
	}
	all := tree{"run": {Header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}} // for the lock of iptables-legacy
	for _, file := range list {
		d, err := all.unpack(file)
		if err != nil {
			return p, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		p.debs = append(p.debs, d)
	}
	if err := all.whole(); err != nil {
		return p, err
	}
	p.files, err = all.tar(date)
	return p, err
}

// tree is a file system by name, without a slash in front.
type tree map[string]entry

type entry struct {
	tar.Header
	data []byte
}

// unpack adds the files of a package that kept selects.
func (t tree) unpack(file string) (deb, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return deb{}, err
	}
	sum := sha256.Sum256(data)
	fields, err := exec.Command("dpkg-deb", "--show", "--showformat=${Package} ${Version} ${Architecture}", file).Output()
	words := strings.Fields(string(fields))
	if err != nil || len(words) != 3 {
		return deb{}, fmt.Errorf("dpkg-deb says %q: %w", fields, err)
	}
	unpacked, err := exec.Command("dpkg-deb", "--fsys-tarfile", file).Output()
	if err != nil {
		return deb{}, fmt.Errorf("unpack: %w", err)
	}
	for r := tar.NewReader(bytes.NewReader(unpacked)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return deb{words[0], words[1], words[2], hex.EncodeToString(sum[:])}, nil
		}
		if err != nil {
			return deb{}, err
		}
		name := path.Clean(h.Name)
		if !kept(name, h.Typeflag) {
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			return deb{}, err
		}
		t[name] = entry{tar.Header{Typeflag: h.Typeflag, Mode: h.Mode, Linkname: h.Linkname, Size: h.Size}, data}
	}
}

// kept reports whether a file of a package goes into the image: programs, libraries, names of protocols, and licences do. Folders
// that would be empty are not created.
func kept(name string, kind byte) bool {
	if kind == tar.TypeDir {
		return false
	}
	if strings.HasPrefix(name, "usr/share/doc/") {
		return path.Base(name) == "copyright"
	}
	for _, no := range []string{"usr/share/", "lib/systemd/", "usr/lib/x86_64-linux-gnu/gconv/", "usr/lib/aarch64-linux-gnu/gconv/"} {
		if strings.HasPrefix(name, no) {
			return false
		}
	}
	return true
}

// whole returns an error if a required library is missing.
func (t tree) whole() error {
	there := map[string]bool{}
	for name := range t {
		there[path.Base(name)] = true
	}
	for _, name := range slices.Sorted(maps.Keys(t)) {
		f, err := elf.NewFile(bytes.NewReader(t[name].data))
		if err != nil {
			continue // not a program
		}
		need, err := f.ImportedLibraries()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		for _, n := range need {
			if !there[n] {
				return fmt.Errorf("%s needs %s, and no package has it", name, n)
			}
		}
	}
	return nil
}

// tar returns all files in the order of their names, each after its folders.
func (t tree) tar(date time.Time) ([]byte, error) {
	for _, name := range slices.Collect(maps.Keys(t)) {
		for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
			t[dir] = entry{Header: tar.Header{Typeflag: tar.TypeDir, Mode: 0o755}}
		}
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		h := t[name].Header
		h.Name, h.ModTime, h.Format = name, date, tar.FormatPAX
		if h.Typeflag == tar.TypeDir {
			h.Name += "/"
		}
		if err := w.WriteHeader(&h); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if _, err := w.Write(t[name].data); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	err := w.Close()
	return out.Bytes(), err
}
