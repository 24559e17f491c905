// Package secretfile reads secrets again from the files that NAME_FILE settings name, while the process runs.
//
// Such a file is rewritten by a Vault agent, replaced through a symbolic link by a CSI driver or a kubelet, or replaced
// by an administrator. Its rules:
//
//  1. A password of a store is read for each new connection. Connections that exist stay.
//  2. Keys are read every few seconds, and used once two readings in a row agree, so that a file that is being
//     rewritten is not used.
//  3. A file that is missing, empty or invalid changes nothing: the last valid value stays. One line in the log says
//     so, and one that it is over. No line quotes the value or the path.
//  4. Only the user and password of a store's URL are followed. Another server takes effect at the next start:
//     otherwise a process would use two servers at a time.
//
// The app packages of both services use it.
package secretfile
