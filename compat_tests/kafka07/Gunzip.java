import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.util.zip.GZIPInputStream;

/** Unpacks streams as the Java client of Kafka 0.7 does: with the class and in the pieces that it uses. */
public class Gunzip {
    public static void main(String[] arguments) throws Exception {
        DataInputStream input = new DataInputStream(System.in);
        DataOutputStream output = new DataOutputStream(System.out);
        for (int count = input.readInt(); count > 0; count--) {
            byte[] packed = new byte[input.readInt()];
            input.readFully(packed);
            GZIPInputStream stream = new GZIPInputStream(new ByteArrayInputStream(packed));
            ByteArrayOutputStream content = new ByteArrayOutputStream();
            byte[] piece = new byte[1024];
            for (int size = stream.read(piece); size > 0; size = stream.read(piece)) {
                content.write(piece, 0, size);
            }
            output.writeInt(content.size());
            content.writeTo(output);
        }
        output.flush();
    }
}
