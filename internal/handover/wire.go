package handover

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the socket's address; @ stands for the zero byte of an abstract one.
const Name = "@fairlead-handover"

const (
	stepLimit  = 20 * time.Second // how long the successor waits for the next message
	totalLimit = 5 * time.Second  // how long the sender waits in all: no Service accepts a connection during that time
	batchItems = 64               // the kernel passes at most 253 descriptors at once
	batchBytes = 32 << 10
	maxMessage = 128 << 10
)

// The messages other than batches.
const (
	wordGot  = "got"  // a batch has arrived
	wordMine = "mine" // everything has arrived, and the successor owns it
	wordEnd  = "end"  // there is no further batch
)

// Item is one part of the state that is handed over.
type Item struct {
	Kind  string `json:"kind"`
	Key   string `json:"key"`
	Value string `json:"value,omitempty"`
	// File is the Item's descriptor; nil for none. The owner of the Item closes it.
	File    *os.File `json:"-"`
	HasFile bool     `json:"file,omitempty"`
}

func closeFiles(list []Item) {
	for i := range list {
		if list[i].File != nil {
			_ = list[i].File.Close()
		}
	}
}

// wire is a connection that preserves message boundaries and carries file descriptors.
type wire struct {
	c     *net.UnixConn
	limit time.Duration // of each step
	until time.Time     // of all steps; zero: no bound
}

// deadline returns the deadline of the step that begins now.
func (w wire) deadline() time.Time {
	step := time.Now().Add(w.limit)
	if !w.until.IsZero() && w.until.Before(step) {
		return w.until
	}
	return step
}

func (w wire) say(word string) error {
	_ = w.c.SetWriteDeadline(w.deadline())
	_, err := w.c.Write([]byte(word))
	return err
}

// hear waits for one word.
func (w wire) hear(want string) error {
	_ = w.c.SetReadDeadline(w.deadline())
	buf := make([]byte, 64)
	n, err := w.c.Read(buf)
	if err != nil {
		return err
	}
	if got := string(buf[:n]); got != want {
		return fmt.Errorf("unexpected handover message %q, want %q", got, want)
	}
	return nil
}

// send sends a batch and waits until it has arrived.
func (w wire) send(list []Item) error {
	var fds []int
	for i := range list {
		if list[i].HasFile = list[i].File != nil; list[i].HasFile {
			fd, err := number(list[i].File)
			if err != nil {
				return err
			}
			fds = append(fds, fd)
		}
	}
	text, err := json.Marshal(list)
	if err != nil {
		return err
	}
	_ = w.c.SetWriteDeadline(w.deadline())
	if _, _, err := w.c.WriteMsgUnix(text, unix.UnixRights(fds...), nil); err != nil {
		return err
	}
	return w.hear(wordGot)
}

// receive returns the next batch; nil after the last one.
func (w wire) receive() ([]Item, error) {
	_ = w.c.SetReadDeadline(w.deadline())
	text, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*batchItems))
	n, m, flags, _, err := w.c.ReadMsgUnix(text, oob)
	if err != nil {
		return nil, err
	}
	files, err := descriptors(oob[:m])
	if err == nil && flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 {
		err = errors.New("handover message truncated: this process may open too few files (ulimit -n)")
	}
	end := err == nil && string(text[:n]) == wordEnd
	var list []Item
	if err == nil && !end {
		err = json.Unmarshal(text[:n], &list)
	}
	if e := distribute(list, files); err == nil {
		err = e
	}
	if end {
		return nil, nil
	}
	if err == nil {
		err = w.say(wordGot)
	}
	if err != nil {
		closeFiles(list)
		return nil, err
	}
	return list, nil
}

// distribute assigns the received files to their Items, and closes those that belong to none.
func distribute(list []Item, files []*os.File) (err error) {
	for i := range list {
		if list[i].HasFile && len(files) > 0 {
			list[i].File, files = files[0], files[1:]
		} else if list[i].HasFile && err == nil {
			err = fmt.Errorf("%s %s: file descriptor missing in the handover message", list[i].Kind, list[i].Key)
		}
	}
	for _, f := range files {
		_ = f.Close()
	}
	return err
}

// number is a file's descriptor. File.Fd would make it blocking, and with it the one
// that is still in use.
func number(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	return fd, err
}

func descriptors(oob []byte) (files []*os.File, err error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for i := range messages {
		fds, e := unix.ParseUnixRights(&messages[i])
		err = errors.Join(err, e)
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, err
}
