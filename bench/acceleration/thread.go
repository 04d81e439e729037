package main

import "runtime"

// onThread runs do on a thread that runs nothing else afterwards.
func onThread(do func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		done <- do()
	}()
	return <-done
}
