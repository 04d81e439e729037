// Package browser drives Debian's headless Chromium through its chromedriver, by the W3C's WebDriver protocol: enough of it to look at
// the status page as people with a keyboard, a screen reader or a small screen do.
package browser
